//! The secrets of tokens that stand beside each other, for `[admin]` and `[receive]`. Called where those are read; a secret is
//! never printed.

use postrider_relay::secret::Secret;

/// The secret of one token, or why it cannot be used beside those before it. `nameless`: why it needs a name.
pub(super) fn secret<'a>(
    (name, token): (&str, &Secret),
    mut before: impl Iterator<Item = (&'a str, &'a str)>,
    nameless: &str,
) -> Result<String, String> {
    let secret = token.reveal("the token").map_err(|error| error.to_string())?.trim().to_owned();
    if name.trim().is_empty() {
        return Err(format!("it has no name, and {nameless} needs one"));
    }
    if secret.is_empty() {
        return Err("it is empty".to_owned());
    }
    match before.find(|other| other.0 == name || other.1 == secret) {
        Some((other, _)) if other == name => Err("there are two of that name".to_owned()),
        Some(_) => Err("another one is the same".to_owned()),
        None => Ok(secret),
    }
}
