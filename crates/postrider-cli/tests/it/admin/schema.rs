//! Requests made up from the `OpenAPI` document, right ones and wrong ones, against a real process: none may fail it, and every
//! answer must be one that the document promises. Made by schemathesis, a Python program of the tests' cache directory
//! (scripts/setup puts it there).

use postrider_testkit::python;

use super::server::{OPERATE, Server, kill, message, store};
use crate::support::outboxes;

/// It leaves files behind: in the directory that is its first argument.
const PROGRAM: &str =
    "import os, sys; os.chdir(sys.argv.pop(1)); from schemathesis.cli import schemathesis; schemathesis()";

/// A few examples for each endpoint, the same ones each time.
const ARGUMENTS: &[&str] = &[
    "--checks",
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
     response_headers_conformance,unsupported_method,allow_header_conformance",
    "--max-examples",
    "5",
    "--generation-deterministic",
    "--no-color",
];

#[tokio::test]
async fn slow_every_answer_is_one_that_the_document_promises() {
    // What can be wrong with a request is the same for every store; what is right about it is not.
    for (outbox, phases) in outboxes().await.into_iter().zip(["coverage,fuzzing", "fuzzing"]) {
        let store = store(&outbox);
        kill(&*store, &[message("order.placed", 1).lane("a"), message("order.placed", 2)], "REFUSED").await;
        let server = Server::serve(&outbox);
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().to_str().unwrap();
        let document = format!("{}/api/openapi.json", server.url);
        let token = format!("Authorization: Bearer {OPERATE}");
        let arguments = [&[directory, "run", &document, "--header", &token, "--phases", phases], ARGUMENTS].concat();
        let output = python(PROGRAM, &arguments, b"").await;
        assert!(output.status.success(), "{}\n{}\n{}", output.stdout, output.stderr, server.said());
        // The process is still there, and the outbox is whole.
        assert_eq!(server.get("/api/ready").await.status, 200);
    }
}
