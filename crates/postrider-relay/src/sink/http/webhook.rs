//! Signs a request as Standard Webhooks 1.0 says: HMAC-SHA256 over `id.timestamp.body`, the body's bytes as they are
//! sent, text or not. The id is the message's, so it is the same over all retries; the timestamp is the attempt's.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use uuid::Uuid;

use super::options::WebhookOptions;
use crate::error::Error;

/// How the names of all of them begin.
pub(super) const START: &str = "webhook-";
pub(super) const ID: &str = "webhook-id";
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";

/// How a secret begins that is to be used with the symmetric signature, `v1`.
const PREFIX: &str = "whsec_";
/// How long a key is, in bytes: what the specification asks for.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// The current secret, and the one that it replaces.
const MAX_SECRETS: usize = 2;

/// Keys, ready to sign with.
#[derive(Clone)]
pub(super) struct Signer(Vec<Hmac<Sha256>>);

impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Signer({} secrets)", self.0.len())
    }
}

/// The headers that a signed request has more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) id: String,
    pub(super) timestamp: String,
    pub(super) signatures: String,
}

impl Signer {
    pub(super) fn new(options: &WebhookOptions) -> Result<Self, Error> {
        if !(1..=MAX_SECRETS).contains(&options.secrets.len()) {
            let reason = "webhook.secrets must hold one secret, or two while one replaces the other".to_owned();
            return Err(Error::options(reason));
        }
        options
            .secrets
            .iter()
            .map(|secret| key(&secret.reveal("a webhook secret")?))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// How many signatures a request gets.
    pub(super) fn secrets(&self) -> usize {
        self.0.len()
    }

    pub(super) fn sign(&self, id: Uuid, now: SystemTime, body: &[u8]) -> Signed {
        let id = id.to_string();
        let timestamp = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string();
        let signatures: Vec<String> = self
            .0
            .iter()
            .map(|key| {
                let mut mac = key.clone();
                for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                    mac.update(part);
                }
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            })
            .collect();
        Signed { id, timestamp, signatures: signatures.join(" ") }
    }
}

/// Never says what the secret is, only what is wrong with it.
fn key(secret: &str) -> Result<Hmac<Sha256>, Error> {
    let wrong = |what: String| {
        let (least, most) = (KEY_BYTES.start(), KEY_BYTES.end());
        Error::options(format!(
            "a webhook secret {what}: it is `{PREFIX}` and {least} to {most} random bytes in base64"
        ))
    };
    let encoded = secret.strip_prefix(PREFIX).ok_or_else(|| wrong(format!("does not begin with {PREFIX}")))?;
    let bytes = STANDARD.decode(encoded).map_err(|_| wrong("is not base64".to_owned()))?;
    if !KEY_BYTES.contains(&bytes.len()) {
        return Err(wrong(format!("has {} bytes", bytes.len())));
    }
    Hmac::new_from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::secret::Secret;

    fn signer(secrets: &[&str]) -> Result<Signer, Error> {
        Signer::new(&WebhookOptions { secrets: secrets.iter().copied().map(Secret::from).collect() })
    }

    /// The example of the specification's own test suite.
    #[test]
    fn the_reference_example_has_its_signature() {
        let mut mac = signer(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).expect("a signer").0.remove(0);
        mac.update(b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}");
        assert_eq!(STANDARD.encode(mac.finalize().into_bytes()), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_make_two_signatures() {
        let old = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let new = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let sign = |secrets: &[&str]| signer(secrets).expect("a signer").sign(Uuid::nil(), now, &[0xff, 0]);
        let both = sign(&[new, old]);
        assert_eq!(both.signatures, format!("{} {}", sign(&[new]).signatures, sign(&[old]).signatures));
        assert_eq!((both.id, both.timestamp), (Uuid::nil().to_string(), "1700000000".to_owned()));
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_repeated() {
        for wrong in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_###", "whsec_c2hvcnQ=", ""] {
            let error = signer(&[wrong]).expect_err("no secret").to_string();
            assert!(error.contains("24 to 64 random bytes"), "{error}");
            assert!(wrong.is_empty() || !error.contains(wrong), "{error}");
        }
        let good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert!(signer(&[]).is_err() && signer(&[good, good, good]).is_err());
    }
}
