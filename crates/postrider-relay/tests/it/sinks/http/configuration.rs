//! What can be read in a configuration, and what is said of one that cannot work.

use std::collections::BTreeMap;
use std::time::Duration;

use figment::Figment;
use figment::providers::{Format as _, Toml};
use postrider_relay::secret::Secret;
use postrider_relay::sink::http::{BasicAuth, HttpBody, HttpOptions, HttpSink};

/// The first lines of each page are pasted by its readers.
#[test]
fn what_the_documentation_shows_is_read() {
    let pages = [
        include_str!("../../../../../../docs/sinks/http.md"),
        include_str!("../../../../../../docs/sinks/webhooks.md"),
    ];
    let shown: Vec<&str> = pages
        .iter()
        .flat_map(|page| page.split("```toml\n").skip(1))
        .map(|block| block.split("```").next().expect("a block"))
        .collect();
    assert_eq!(shown.len(), 4);
    for (block, sink) in shown.into_iter().zip(["orders", "default", "partner", "partner"]) {
        // The last block goes on with the one before.
        let block = if block.contains("url") { block.to_owned() } else { format!("{block}\nurl = \"http://x/\"") };
        let read: Result<HttpOptions, _> =
            Figment::from(Toml::string(&block)).extract_inner(&format!("sinks.{sink}.http"));
        read.unwrap_or_else(|error| panic!("{error}: {block}"));
    }
}

#[test]
fn every_option_is_read() {
    let text = r#"
        url = "https://example.org/{topic}"
        method = "PUT"
        headers = { x-key = { env = "KEY" }, x-plain = "text" }
        body = "cloudevents-binary"
        max_batch = 7
        max_batch_bytes = 1000
        lanes_in_order = true
        gzip = true
        source = "/shop/{namespace}"
        basic = { user = "u", password = { file = "/run/secret" } }
        client_cert = "/c.pem"
        client_key = "/k.pem"
        ca = "/ca.pem"
        connect_timeout = "1s 500ms"
        timeout = "2m"
        max_response_bytes = 10
        retry_statuses = [404]
        terminal_statuses = [503]
        reply_code = "/error/code"
        reference_header = "x-id"
        webhook = { secrets = ["whsec_x"] }
        guard = false
        allow = ["10.0.0.0/8", "fd00::/8"]
        http2_prior_knowledge = true
    "#;
    let options: HttpOptions = Figment::from(Toml::string(text)).extract().expect("options");
    assert_eq!((options.connect_timeout, options.timeout), (Duration::from_millis(1_500), Duration::from_mins(2)));
    assert_eq!((options.body, options.max_batch, options.allow.len()), (HttpBody::CloudeventsBinary, 7, 2));
    assert!(Figment::from(Toml::string("url = \"http://x/\"\nurll = 1")).extract::<HttpOptions>().is_err());
    assert!(Figment::from(Toml::string("method = \"PUT\"")).extract::<HttpOptions>().is_err(), "a url is needed");
    let least: HttpOptions = Figment::from(Toml::string("url = \"http://x/\"")).extract().expect("options");
    let made = HttpOptions::new("http://x/".parse().expect("a template"));
    assert_eq!(format!("{least:?}"), format!("{made:?}"), "the same defaults in both ways");
}

#[test]
fn what_cannot_work_is_said_at_the_start() {
    let with = |change: &dyn Fn(&mut HttpOptions)| {
        let mut options = HttpOptions::new("https://example.org/in".parse().expect("a template"));
        change(&mut options);
        HttpSink::new(options).expect_err("it cannot work").to_string()
    };
    let url = |url: &str| with(&|options| options.url = url.parse().expect("a template"));
    for (error, expected) in [
        (url("ftp://example.org/"), "no other scheme"),
        (url("example.org"), "https:// or http://"),
        (url("https://user:hunter2@example.org/"), "put them into `basic`"),
        (url("https://{topic}.example.org/"), "guard = true"),
        (url("https://example.org/a/../{topic}"), "piece of its path"),
        (url("https://example.org/a b"), "a space"),
        (url("https://"), "cannot be read"),
        (with(&|options| options.method = "P OST".to_owned()), "no HTTP method"),
        (with(&|options| options.client_cert = Some("/cert.pem".into())), "go together"),
        (with(&|options| options.ca = Some("/there/is/no.pem".into())), "/there/is/no.pem cannot be used"),
        (with(&|options| options.headers = BTreeMap::from([("a b".to_owned(), "c".into())])), "no header"),
        (with(&|options| options.headers = BTreeMap::from([("host".to_owned(), "c".into())])), "no header"),
        (with(&|options| options.bearer = Some(Secret::from("hunter2\n"))), "cannot be sent"),
        (
            with(&|options| {
                options.bearer = Some(Secret::from("a"));
                options.basic = Some(BasicAuth::new("b".to_owned(), Secret::from("c")));
            }),
            "exclude each other",
        ),
    ] {
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
