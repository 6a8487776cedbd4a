//! A configuration that can be shown: every secret as `***`. What a sink's table holds is hidden unless it is known to be
//! harmless, so that a key that is added later is hidden until somebody says otherwise. Where a secret is (`{ env = "NAME" }`)
//! is no secret.

use figment::value::{Dict, Value};
use postrider_relay::sink::registry::SinkKind;

/// Stands for what is not shown.
pub(crate) const HIDDEN: &str = "***";

/// Shorter texts are not looked for in messages: they would be found in words that have nothing to do with them.
const SCRUB_LEAST: usize = 4;

/// Texts that are addresses: shown without what may be a secret in them.
const ADDRESSES: [&str; 2] = ["url", "servers"];
/// Tables whose keys anybody may choose: `env` in one of them is no place of a secret.
const FREE_TABLES: [&str; 2] = ["headers", "properties"];

/// The same configuration, to be shown.
pub(crate) fn shown(values: &Dict) -> Dict {
    let section = |(name, value): (&String, &Value)| {
        let value = match name.as_str() {
            "databases" => each(value, &|_, database| {
                each(database, &|key, value| match key {
                    "url" => address(value, &url),
                    _ => value.clone(),
                })
            }),
            "admin" | "receive" => each(value, &tokens),
            "sinks" => each(value, &|_, sink| each(sink, &kind)),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    values.iter().map(section).collect()
}

/// A text without any secret of this configuration that it may have repeated.
pub(crate) fn scrub(text: &str, values: &Dict) -> String {
    let mut secrets = Vec::new();
    for ((_, value), shown) in values.iter().zip(shown(values).values()) {
        collect(value, shown, &mut secrets);
    }
    // The longest first, for one may be part of another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
        .iter()
        .filter(|secret| secret.len() >= SCRUB_LEAST)
        .fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

fn each(value: &Value, change: &dyn Fn(&str, &Value) -> Value) -> Value {
    match value {
        Value::Dict(tag, dict) => {
            Value::Dict(*tag, dict.iter().map(|(key, value)| (key.clone(), change(key, value))).collect())
        }
        other => other.clone(),
    }
}

fn tokens(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("tokens", Value::Array(tag, tokens)) => {
            let token =
                |token: &Value| each(token, &|key, value| if key == "token" { secret(value) } else { value.clone() });
            Value::Array(*tag, tokens.iter().map(token).collect())
        }
        ("token" | "tokens", _) => secret(value),
        _ => value.clone(),
    }
}

/// One key of a sink: what it is, or how it is treated.
fn kind(name: &str, value: &Value) -> Value {
    let Some(SinkKind { public_keys: public, .. }) = SinkKind::find(name) else { return value.clone() };
    each(value, &|key, value| match key {
        _ if ADDRESSES.contains(&key) && public.contains(&key) => address(value, &url),
        // What comes behind the host may be a key, as in a chat's hook, or tell of a tenant, as a virtual host does.
        _ if ADDRESSES.contains(&key) => address(value, &without_path),
        _ if public.contains(&key) => value.clone(),
        _ if FREE_TABLES.contains(&key) => each(value, &|_, value| secret(value)),
        _ => match value {
            Value::Num(..) | Value::Bool(..) | Value::Empty(..) => value.clone(),
            Value::Dict(_, inner) if !names_a_place(inner) => each(value, &|inner, value| {
                if public.contains(&format!("{key}.{inner}").as_str()) { value.clone() } else { secret(value) }
            }),
            _ => secret(value),
        },
    })
}

/// Nothing of it, but where it is.
fn secret(value: &Value) -> Value {
    match value {
        Value::Dict(_, dict) if names_a_place(dict) => value.clone(),
        Value::Dict(tag, dict) => {
            Value::Dict(*tag, dict.iter().map(|(key, value)| (key.clone(), secret(value))).collect())
        }
        Value::Array(tag, items) => Value::Array(*tag, items.iter().map(secret).collect()),
        Value::Bool(..) | Value::Empty(..) => value.clone(),
        Value::String(tag, _) | Value::Char(tag, _) | Value::Num(tag, _) => Value::String(*tag, HIDDEN.to_owned()),
    }
}

fn names_a_place(dict: &Dict) -> bool {
    dict.len() == 1
        && dict.iter().all(|(key, value)| ["env", "file"].contains(&key.as_str()) && value.as_str().is_some())
}

/// An address or several.
fn address(value: &Value, shown: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(tag, text) => Value::String(*tag, shown(text)),
        Value::Array(tag, items) => Value::Array(*tag, items.iter().map(|item| address(item, shown)).collect()),
        other => secret(other),
    }
}

/// A URL without whoever logs in, and without the values of its query. All before the last `@` counts as the former,
/// because a password that is not encoded may hold anything.
pub(crate) fn url(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => {
            (format!("{scheme}://"), rest)
        }
        None if text.starts_with("sqlite:") || text.split(',').all(is_host_and_port) => return text.to_owned(),
        _ => return HIDDEN.to_owned(),
    };
    let (login, place) = match rest.rsplit_once('@') {
        Some((_, place)) => (format!("{HIDDEN}@"), place),
        None => (String::new(), rest),
    };
    let (place, query) = match place.split_once(['?', '#']) {
        Some((place, query)) => {
            let hidden = |pair: &str| {
                pair.split_once('=').map_or_else(|| HIDDEN.to_owned(), |(key, _)| format!("{key}={HIDDEN}"))
            };
            (place, format!("?{}", query.split('&').map(hidden).collect::<Vec<_>>().join("&")))
        }
        None => (place, String::new()),
    };
    format!("{scheme}{login}{place}{query}")
}

/// A URL without anything behind its host.
fn without_path(text: &str) -> String {
    let shown = url(text);
    match shown.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once(['/', '?']))) {
        Some((scheme, Some((host, _)))) => format!("{scheme}://{host}/{HIDDEN}"),
        _ => shown,
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.contains([':', '@']) && port.parse::<u16>().is_ok())
}

/// What is not shown as it is.
fn collect(value: &Value, shown: &Value, secrets: &mut Vec<String>) {
    match (value, shown) {
        (Value::Dict(_, inner), Value::Dict(_, shown)) => {
            for (key, value) in inner {
                if let Some(shown) = shown.get(key) {
                    collect(value, shown, secrets);
                }
            }
        }
        (Value::Array(_, inner), Value::Array(_, shown)) => {
            for (value, shown) in inner.iter().zip(shown) {
                collect(value, shown, secrets);
            }
        }
        (Value::String(_, text), Value::String(_, shown)) if text != shown => {
            secrets.push(text.clone());
            // What a URL has behind its host may be repeated without the rest.
            let path = text.split_once("://").and_then(|(_, rest)| rest.split_once(['/', '?'])).map(|(_, path)| path);
            secrets.extend(path.filter(|path| !shown.contains(path)).map(str::to_owned));
            let login = text.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(login, _)| login);
            secrets.extend(login.map(str::to_owned));
            secrets.extend(login.and_then(|login| login.split_once(':')).map(|(_, password)| password.to_owned()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use figment::{Figment, Provider as _};

    use super::*;
    use crate::config::layers::Layer;
    use crate::config::tests::{keys_of, options_of};

    /// Whether an option is a secret, by its type: it takes the place of one, and shows that.
    fn is_secret(kind: &str, key: &str) -> bool {
        let place = Dict::from([("env".to_owned(), Value::from("POSTRIDER_PROBE"))]);
        let mut figment = Figment::from(Layer::one("a test", &[key], place));
        loop {
            match options_of(kind, &figment) {
                Ok(read) => return read.contains("{ env = \"POSTRIDER_PROBE\" }"),
                Err(figment::error::Kind::MissingField(required)) => {
                    figment = figment.join(Layer::one("a test", &[&required], "http://h"));
                }
                Err(_) => return false,
            }
        }
    }

    #[test]
    fn whatever_is_a_secret_by_its_type_is_hidden() {
        let built_in = SinkKind::ALL.iter().filter(|kind| kind.is_built_in).map(|kind| kind.name);
        let keys = built_in.flat_map(|kind| keys_of(kind).into_iter().map(move |key| (kind, key)));
        let secrets: Vec<_> = keys.filter(|(kind, key)| is_secret(kind, key)).collect();
        assert!(!secrets.is_empty());
        for (kind, key) in secrets {
            let values = Layer::one("a test", &["sinks", "a", kind, &key], "scheme://user:hunter2@host/?a=hunter2");
            let shown = shown(&values.data().unwrap_or_default().into_values().next().unwrap_or_default());
            assert!(!format!("{shown:?}").contains("hunter2"), "{kind}.{key}");
        }
    }

    #[test]
    fn a_virtual_host_is_hidden() {
        let printed = |kind: &str, url: &str| {
            let values = Layer::one("a test", &["sinks", "a", kind, "url"], url).data().unwrap_or_default();
            format!("{:?}", shown(&values.into_values().next().unwrap_or_default()))
        };
        assert!(printed("http", "https://chat/hunter2").contains("https://chat/***"));
        let amqp = printed("rabbitmq", "amqp://relay:hunter2@mq:5672/tenant-hunter2");
        assert!(amqp.contains("amqp://***@mq:5672/***") && !amqp.contains("hunter2"), "{amqp}");
        if cfg!(feature = "redis") {
            assert!(printed("redis", "redis://r:6379/2").contains("r:6379/2"), "the number of a database is not");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (text, shown) in [
            (
                "postgres://app:hunter2@db:5432/shop?sslmode=require&password=hunter2",
                "postgres://***@db:5432/shop?sslmode=***&password=***",
            ),
            ("postgres://app:hun/ter?2#@db/shop", "postgres://***@db/shop"),
            ("nats://hunter2@a:4222,nats://b:hunter2@c:4222", "nats://***@c:4222"),
            ("https://h/{topic}?hunter2", "https://h/{topic}?***"),
            ("host=db password=hunter2", "***"),
            ("hun ter2://x", "***"),
            ("sqlite:shop.db", "sqlite:shop.db"),
            ("a:4222,b:4222", "a:4222,b:4222"),
            ("hunter2", "***"),
            ("user:hunter2@a:4222", "***"),
        ] {
            assert_eq!(url(text), shown);
        }
        for (text, shown) in [
            ("https://chat/services/hunter2", "https://chat/***"),
            ("https://h:8443?key=hunter2", "https://h:8443/***"),
            ("https://h/", "https://h/***"),
            ("https://h", "https://h"),
            ("hunter2", "***"),
        ] {
            assert_eq!(without_path(text), shown);
        }
    }
}
