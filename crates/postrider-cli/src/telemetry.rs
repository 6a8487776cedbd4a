//! What this process has counted, in Prometheus' words, for `/metrics`.

/// The exposition.
pub(crate) fn render() -> String {
    String::new()
}
