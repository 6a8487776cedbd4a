//! `sslmode` and `sslrootcert` with libpq's meaning, on rustls: `disable` never encrypts, `prefer` (the default) and
//! `require` encrypt without checking who answers, `verify-ca` and `verify-full` check the certificate and the name
//! (rustls knows no chain check without the name check, so both check both).

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::connect::bad_url;
use super::url::Settings;
use crate::error::Error;

/// How a connection is protected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Encrypt { required: bool },
    Verify { roots: Option<PathBuf> },
}

impl Mode {
    /// Reads the mode and takes it out of the settings, because the driver does not know all of the words.
    pub(super) fn take_from(settings: &mut Settings) -> Result<Self, Error> {
        let mode = settings.take("sslmode");
        let roots = settings.take("sslrootcert").map(PathBuf::from);
        match mode.as_deref() {
            None | Some("prefer") => Ok(Self::Encrypt { required: false }),
            Some("disable") => Ok(Self::Disable),
            Some("require") if roots.is_none() => Ok(Self::Encrypt { required: true }),
            // libpq too: with a root certificate at hand, `require` verifies.
            Some("require" | "verify-ca" | "verify-full") => Ok(Self::Verify { roots }),
            Some(other) => Err(bad_url(format!(
                "sslmode={other} is not known: use disable, prefer, require, verify-ca or verify-full"
            ))),
        }
    }

    pub(super) fn ssl_mode(&self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Encrypt { required: false } => SslMode::Prefer,
            Self::Encrypt { required: true } | Self::Verify { .. } => SslMode::Require,
        }
    }

    pub(super) fn connector(&self) -> Result<Option<MakeRustlsConnect>, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad_url(error.to_string()))?;
        let config = match self {
            Self::Disable => return Ok(None),
            Self::Encrypt { .. } => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
            Self::Verify { roots } => builder.with_root_certificates(root_store(roots.as_ref())?).with_no_client_auth(),
        };
        Ok(Some(MakeRustlsConnect::new(config)))
    }
}

fn root_store(file: Option<&PathBuf>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    match file {
        Some(path) => {
            let unreadable = |error: String| bad_url(format!("sslrootcert {} cannot be used: {error}", path.display()));
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))? {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() {
        return Err(bad_url(
            "there is no root certificate to verify the server with: give sslrootcert=FILE".to_owned(),
        ));
    }
    Ok(store)
}

/// Encrypts without asking who is there: what libpq does for `prefer` and `require`.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn mode(query: &str) -> (Result<Mode, Error>, Settings) {
        let mut settings = Settings::read(&format!("postgres://u@h/db{query}")).unwrap();
        (Mode::take_from(&mut settings), settings)
    }

    #[test]
    fn modes_mean_what_libpq_means() {
        assert_eq!(mode("").0.unwrap(), Mode::Encrypt { required: false });
        assert_eq!(mode("?sslmode=disable").0.unwrap(), Mode::Disable);
        assert_eq!(mode("?sslmode=require").0.unwrap(), Mode::Encrypt { required: true });
        assert_eq!(mode("?sslmode=verify-full").0.unwrap(), Mode::Verify { roots: None });
        let (verified, rest) = mode("?sslmode=require&sslrootcert=/ca.pem&application_name=x");
        assert_eq!(verified.unwrap(), Mode::Verify { roots: Some(PathBuf::from("/ca.pem")) });
        assert!(rest.has("application_name") && !rest.has("sslmode") && !rest.has("sslrootcert"));
        assert!(matches!(mode("?sslmode=allow").0, Err(error) if error.kind() == ErrorKind::BadUrl));
    }
}
