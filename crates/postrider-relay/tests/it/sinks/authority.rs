//! An authority of the tests' own, and the certificates it gives out, as files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority; its certificate is the file `ca.pem`.
pub(super) struct Authority {
    directory: TempDir,
    pub(super) issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Another than what it issues, or OpenSSL takes that for self-signed.
        params.distinguished_name.push(DnType::CommonName, "the tests' authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        let authority = Self { directory: tempfile::tempdir().expect("a directory"), issuer };
        // A server runs under another account, and reads its key there.
        open_to_all(authority.directory.path(), 0o755);
        authority.write("ca.pem", &authority.issuer.pem());
        authority
    }

    pub(super) fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, pem).expect("a file");
        open_to_all(&path, 0o644);
        path
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.issuer).expect("a certificate"), key)
    }

    /// A certificate for this name and its key, as files.
    pub(super) fn files(&self, name: &str) -> [PathBuf; 2] {
        let (certificate, key) = self.issue(name);
        [
            self.write(&format!("{name}.pem"), &certificate.pem()),
            self.write(&format!("{name}.key"), &key.serialize_pem()),
        ]
    }
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
}
