//! What TLS needs of the whole process: one provider of cryptography. A program that has chosen one keeps it. Called by
//! sinks whose client libraries take the process's provider and panic when there is none.

use rustls::crypto::{CryptoProvider, ring};

/// The program's provider, or else ring.
pub(crate) fn ensure_provider() {
    if CryptoProvider::get_default().is_none() {
        // An error says that another thread was faster, so that there is one now.
        drop(ring::default_provider().install_default());
    }
}
