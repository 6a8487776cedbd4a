//! Reads what libpq reads: `postgres://user:password@host:port,host:port/database?key=value&…`, or `key=value key=value`.
//! Both become settings by name; what they mean is the connector's business. A password may be in any of it, so an error
//! never repeats a value.

use tokio_postgres::Config;

use super::connect::bad_url;
use crate::error::{Error, words_and_causes};

/// What a URL says, by libpq's names. Of a setting that is given twice the last one counts.
#[derive(Default)]
pub(super) struct Settings(Vec<(String, String)>);

impl Settings {
    pub(super) fn read(url: &str) -> Result<Self, Error> {
        match url.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => Self::from_uri(rest),
            Some((scheme, _)) if !scheme.contains('=') => {
                Err(bad_url(format!("it begins with {}://, not postgres://", harmless(scheme))))
            }
            _ => Self::from_pairs(url),
        }
    }

    /// The value, which is then no longer among the settings.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.remove(at).1)
    }

    /// A whole number; one below zero counts as zero.
    pub(super) fn take_number(&mut self, name: &str) -> Result<Option<u64>, Error> {
        let given = self.take(name).filter(|given| !given.trim().is_empty());
        let number = |given: String| given.trim().parse::<i64>().map(|number| u64::try_from(number).unwrap_or(0));
        given.map(number).transpose().map_err(|_| bad_url(format!("{name} is not a whole number")))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(found, _)| found == name)
    }

    /// The driver's configuration from all that was not taken.
    pub(super) fn into_config(self) -> Result<Config, Error> {
        let quote = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}='{}'", quote(value))).collect();
        pairs.join(" ").parse().map_err(|error: tokio_postgres::Error| bad_url(words_and_causes(&error)))
    }

    fn set(&mut self, name: &str, value: String) {
        self.0.retain(|(found, _)| found != name);
        self.0.push((name.to_owned(), value));
    }

    fn from_uri(rest: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        // As libpq does it: what stands before an @ that comes before any slash is user and password.
        let place = match rest.find(['@', '/']) {
            Some(at) if rest[at..].starts_with('@') => {
                let (login, place) = (&rest[..at], &rest[at + 1..]);
                let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
                if !user.is_empty() {
                    settings.set("user", decoded(user)?);
                }
                if let Some(password) = password {
                    settings.set("password", decoded(password)?);
                }
                place
            }
            _ => rest,
        };
        let (place, query) = place.split_once('?').unwrap_or((place, ""));
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        if !hosts.is_empty() {
            let hosts = hosts.split(',').map(host_and_port).collect::<Result<Vec<_>, _>>()?;
            let joined = |part: fn(&(String, String)) -> &str| hosts.iter().map(part).collect::<Vec<_>>().join(",");
            settings.set("host", joined(|(host, _)| host));
            settings.set("port", joined(|(_, port)| port));
        }
        if !database.is_empty() {
            settings.set("dbname", decoded(database)?);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=').filter(|(_, value)| !value.contains('=')) else {
                return Err(bad_url("a setting after the question mark is not name=value".to_owned()));
            };
            settings.set(&named(&decoded(name)?, query)?, decoded(value)?);
        }
        Ok(settings)
    }

    fn from_pairs(text: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let Some((name, value)) = rest.split_once('=') else {
                return Err(bad_url("it is neither postgres://… nor key=value settings".to_owned()));
            };
            let (value, after) = pair_value(value.trim_start())?;
            settings.set(&named(name.trim_end(), text)?, value);
            rest = after.trim_start();
        }
        Ok(settings)
    }
}

/// A host, in brackets if it is an IPv6 address, and its port, which may be missing.
fn host_and_port(text: &str) -> Result<(String, String), Error> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, ""),
            Some((host, port)) if port.starts_with(':') => (host, &port[1..]),
            _ => return Err(bad_url("an address in [brackets] does not end".to_owned())),
        },
        None => text.split_once(':').unwrap_or((text, "")),
    };
    Ok((decoded(host)?, decoded(port)?))
}

/// One value of `key=value`, quoted or not, and what follows it.
fn pair_value(text: &str) -> Result<(String, &str), Error> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            letter if letter.is_whitespace() && !quoted => return Ok((value, &text[at..])),
            letter => value.push(letter),
        }
    }
    if quoted { Err(bad_url("a quoted value does not end".to_owned())) } else { Ok((value, "")) }
}

/// A setting's name. One that no setting can have is not repeated, nor is any if the text looks as if a password with
/// reserved characters had been taken apart.
fn named(name: &str, all: &str) -> Result<String, Error> {
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if plain && (!all.contains('@') || KNOWN.contains(&name)) {
        return Ok(name.to_owned());
    }
    Err(bad_url("it has a setting that is not known; reserved characters of a password are written as %XX".to_owned()))
}

/// What may be named in an error whatever stands around it.
const KNOWN: [&str; 22] = [
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// `%XX` as the byte it stands for; a plus is a plus.
fn decoded(text: &str) -> Result<String, Error> {
    let wrong = || bad_url("a % is not followed by two hexadecimal digits (write it as %25)".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| *byte != 0);
        bytes.push(byte.ok_or_else(wrong)?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| bad_url("what is written as %XX is not UTF-8".to_owned()))
}

fn harmless(scheme: &str) -> String {
    scheme.chars().filter(char::is_ascii_alphanumeric).take(20).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> String {
        match Settings::read(url) {
            Ok(settings) => {
                let pairs: Vec<String> = settings.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
                pairs.join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    /// What libpq takes is taken, with libpq's meaning.
    #[test]
    fn a_url_means_what_libpq_means() {
        for (url, settings) in [
            ("postgres://h", "host=h port="),
            ("postgresql://u@h:1/d", "user=u host=h port=1 dbname=d"),
            ("postgres://u:p@a:1,b:2/d", "user=u password=p host=a,b port=1,2 dbname=d"),
            ("postgres://a,b:2", "host=a,b port=,2"),
            ("postgres://[::1]:5433,[fe80::1%25eth0]/d", "host=::1,fe80::1%eth0 port=5433, dbname=d"),
            ("postgres://%2Fvar%2Frun/d", "host=/var/run port= dbname=d"),
            ("postgres:///d?host=/var/run&port=1", "dbname=d host=/var/run port=1"),
            ("postgres://x:9/d?host=a,b&port=1,2", "dbname=d host=a,b port=1,2"),
            ("postgres://u%40x:p%2Fq%3F@h", "user=u@x password=p/q? host=h port="),
            ("postgres://u:p?q#r+@h/d?sslmode=require", "user=u password=p?q#r+ host=h port= dbname=d sslmode=require"),
            ("postgres://h/d?options=-c%20x%3D1&", "host=h port= dbname=d options=-c x=1"),
            ("host=a,b port=1,2 dbname = d", "host=a,b port=1,2 dbname=d"),
            (r"password='a b\'c\\' user=u\ v", r"password=a b'c\ user=u v"),
            ("host='' user=u", "host= user=u"),
        ] {
            assert_eq!(read(url), settings, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_it() {
        for url in [
            "mysql://app:hunter2@h/d",
            "app:hunter2@h",
            "postgres://app:hun%2zter2@h/d",
            "postgres://app:hunter2%FF@h/d",
            "postgres://app:hunter2@[::1/d",
            "postgres://app:x/y?hunter2=1@h/d",
            "postgres://app@h/d?hunter2",
            "postgres://app@h/d?hunter2=1=2",
            "password='hunter2",
            "hunter2",
        ] {
            let said = read(url);
            assert!(said.starts_with("the database URL is not usable: "), "{url}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
