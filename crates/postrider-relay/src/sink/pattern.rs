//! Patterns of topics and addresses, as in a route: `*` stands for any characters, none included.

/// Whether a text is like a pattern. The pieces between the stars are found from left to right, each as early as it can
/// be, the last at the end.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, expected) in [
            ("orders", "orders", true),
            ("orders", "orders.x", false),
            ("orders.*", "orders.placed", true),
            ("orders.*", "orders.", true),
            ("orders.*", "xorders.placed", false),
            ("*.placed", "a.b.placed", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("**", "anything", true),
            ("ü*", "üx", true),
            ("o*r.*d", "order.created", true),
            ("o*r.*d", "order.creates", false),
            ("a*b*c", "a-c-b-c", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
