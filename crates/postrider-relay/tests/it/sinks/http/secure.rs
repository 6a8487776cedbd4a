//! TLS: whom the sink trusts, whom it shows a certificate, HTTP/2, and what a look at a receiver finds.

use std::sync::Arc;

use postrider_relay::secret::Secret;
use postrider_relay::sink::Level;
use postrider_relay::sink::http::{HttpOptions, HttpSink, WebhookOptions};
use postrider_relay::{FailureClass, Sink as _, SinkFailure};
use postrider_testkit::sink_contract::claimed;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::task::JoinSet;

use super::super::authority::Authority;
use super::receiver::{Receiver, Reply};
use super::{delivered, failed, options, sink};

impl Authority {
    /// The certificate of a server at this name; `mutual`: it asks clients for theirs.
    fn server(&self, name: &str, mutual: bool) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(self.issuer.der().to_vec())).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let (certificate, key) = self.issue(name);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let mut config = builder
            .with_single_cert(vec![CertificateDer::from(certificate.der().to_vec())], key)
            .expect("a certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    async fn receiver(&self, name: &str, mutual: bool) -> Receiver {
        Receiver::start_with(Some(self.server(name, mutual)), |_| Reply::status(200)).await
    }

    fn options(&self, receiver: &Receiver) -> HttpOptions {
        let url = format!("https://localhost:{}/in", receiver.port()).parse().expect("a template");
        HttpOptions::new(url).ca(Some(self.path("ca.pem")))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_agreed_on_and_one_connection_serves_all() {
    let authority = Authority::new();
    let receiver = authority.receiver("localhost", false).await;
    let http = Arc::new(sink(&authority.options(&receiver)));
    delivered(&http, &claimed("t", "1")).await;
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let http = Arc::clone(&http);
        tasks.spawn(async move { delivered(&http, &claimed("t", "1")).await });
    }
    tasks.join_all().await;
    let requests = receiver.received();
    assert!(requests.iter().all(|request| request.version == hyper::Version::HTTP_2));
    assert_eq!((requests.len(), receiver.connections()), (51, 1));
}

#[tokio::test]
async fn http_2_without_asking_first() {
    let receiver = Receiver::accepting().await;
    delivered(&sink(&options(&receiver).http2_prior_knowledge(true)), &claimed("t", "1")).await;
    assert_eq!(receiver.only().version, hyper::Version::HTTP_2);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_not_sent_to() {
    let (ours, other) = (Authority::new(), Authority::new());
    let receiver = ours.receiver("localhost", false).await;
    let wrong_name = ours.receiver("example.org", false).await;
    let strangers = ours.options(&receiver).ca(Some(other.path("ca.pem")));
    for (options, fix) in [(strangers, "give `ca`"), (ours.options(&wrong_name), "use the name in the url")] {
        let http = sink(&options);
        let failure = failed(&http, &claimed("t", "1")).await;
        assert_eq!((failure.code.as_str(), failure.class), (SinkFailure::UNREACHABLE, FailureClass::Retryable));
        assert!(failure.message.contains("certificate"), "{}", failure.message);
        let [finding] = http.check().await.try_into().expect("one finding");
        assert!(
            finding.level == Level::Broken && finding.fix.as_ref().is_some_and(|said| said.contains(fix)),
            "{finding:?}"
        );
    }
    assert!(receiver.received().is_empty() && wrong_name.received().is_empty());
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let authority = Authority::new();
    let receiver = authority.receiver("localhost", true).await;
    let (certificate, key) = authority.issue("client");
    let known = authority
        .options(&receiver)
        .client_cert(Some(authority.write("client.pem", &certificate.pem())))
        .client_key(Some(authority.write("client.key", &key.serialize_pem())));
    delivered(&sink(&known), &claimed("t", "1")).await;
    let failure = failed(&sink(&authority.options(&receiver)), &claimed("t", "1")).await;
    assert_eq!(failure.code, SinkFailure::UNREACHABLE, "{failure:?}");
    let swapped = known.clone().client_cert(known.client_key);
    assert!(HttpSink::new(swapped).expect_err("no certificate").to_string().contains("holds no certificate"));
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn a_look_connects_and_sends_nothing() {
    let authority = Authority::new();
    let secure = authority.receiver("localhost", false).await;
    let [finding] = sink(&authority.options(&secure)).check().await.try_into().expect("one finding");
    assert!(finding.level == Level::Works && finding.what.contains("speaks h2"), "{finding:?}");
    let mut plain = Receiver::accepting().await;
    let http = sink(&options(&plain));
    let [finding] = http.check().await.try_into().expect("one finding");
    assert_eq!(finding.level, Level::Works, "without TLS on this machine is fine: {finding:?}");
    assert!(plain.received().is_empty() && secure.received().is_empty());
    plain.kill().await;
    let [finding] = http.check().await.try_into().expect("one finding");
    assert!(finding.level == Level::Broken && finding.what.contains("cannot be connected to"), "{finding:?}");
}

#[tokio::test]
async fn a_look_finds_what_is_weak() {
    let receiver = Receiver::accepting().await;
    let secret = || Secret::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let webhook = Some(WebhookOptions::new(vec![secret(), secret()]));
    let weak = sink(&options(&receiver).webhook(webhook).guard(Some(false))).check().await;
    let levels: Vec<Level> = weak.iter().map(|finding| finding.level).collect();
    assert_eq!(levels, [Level::Weak, Level::Weak, Level::Works], "{weak:?}");
    let spoken_openly = HttpOptions::new("http://there-is-no-such-host.invalid/".parse().expect("a template"));
    let [finding] = sink(&spoken_openly).check().await.try_into().expect("one finding");
    assert!(finding.what.contains("cannot be looked up"), "{finding:?}");
    let strangers = HttpOptions::new("https://127.0.0.1:1/".parse().expect("a template"));
    assert_eq!(sink(&strangers).check().await[0].level, Level::Broken);
    let speaks_no_tls =
        HttpOptions::new(format!("https://127.0.0.1:{}/", receiver.port()).parse().expect("a template"));
    let [finding] = sink(&speaks_no_tls).check().await.try_into().expect("one finding");
    assert!(finding.fix.as_ref().is_some_and(|fix| fix.contains("TLS is not spoken")), "{finding:?}");
}
