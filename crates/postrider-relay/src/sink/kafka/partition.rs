//! Finds the partition of a key as Kafka's own clients do, so that a lane lies where a Java producer would have put it, and
//! so that the sink knows it before it sends.

/// The partition of a key among so many.
pub(super) fn of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & i32::MAX).checked_rem(partitions).unwrap_or(0)
}

/// The hash of Kafka's default partitioner.
#[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "the hash is of 32 bits, as in Java")]
fn murmur2(key: &[u8]) -> i32 {
    const MIX: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ key.len() as u32;
    let mut fours = key.chunks_exact(4);
    for four in &mut fours {
        let mut word = four.iter().rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        word = word.wrapping_mul(MIX);
        word ^= word >> 24;
        hash = hash.wrapping_mul(MIX) ^ word.wrapping_mul(MIX);
    }
    let rest = fours.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    (hash ^ (hash >> 15)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Kafka's own test of its hash.
    #[test]
    fn the_hash_is_kafkas() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn every_key_has_a_partition() {
        for number in 0..1_000 {
            assert!((0..7).contains(&of(format!("lane-{number}").as_bytes(), 7)));
        }
        assert_eq!(of(b"a", 0), 0, "of a topic that has none");
    }
}
