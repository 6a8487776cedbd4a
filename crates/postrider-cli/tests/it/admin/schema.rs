//! Requests made up from the `OpenAPI` document, right ones and wrong ones, against a real process: none may fail it, and every
//! answer must be one that the document promises. Made by schemathesis, a Python program of the tests' cache directory
//! (scripts/setup puts it there).

use postrider_testkit::python;

use super::server::{OPERATE, Server, kill, message, store};
use crate::support::outboxes;

const PROGRAM: &str = "from schemathesis.cli import schemathesis; schemathesis()";

/// A few examples for each endpoint, the same ones each time: with both stores it takes about a minute.
const ARGUMENTS: &[&str] = &[
    "--checks",
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
     response_headers_conformance,unsupported_method,allow_header_conformance",
    "--phases",
    "examples,coverage,fuzzing",
    "--max-examples",
    "5",
    "--generation-deterministic",
    "--no-color",
];

#[tokio::test]
async fn slow_every_answer_is_one_that_the_document_promises() {
    for outbox in outboxes().await {
        let store = store(&outbox);
        kill(&*store, &[message("order.placed", 1).lane("a"), message("order.placed", 2)], "REFUSED").await;
        let server = Server::serve(&outbox);
        let document = format!("{}/api/openapi.json", server.url);
        let token = format!("Authorization: Bearer {OPERATE}");
        let arguments = [&["run", &document, "--header", &token], ARGUMENTS].concat();
        let output = python(PROGRAM, &arguments, b"").await;
        assert!(output.status.success(), "{}\n{}\n{}", output.stdout, output.stderr, server.said());
        // The process is still there, and the outbox is whole.
        assert_eq!(server.get("/api/ready").await.status, 200);
    }
}
