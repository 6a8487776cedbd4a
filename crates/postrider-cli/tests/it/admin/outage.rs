//! What is logged while the database is away and somebody looks at the page: two lines, however often the page asks.

use super::server::{Server, until};
use crate::support::Outbox;

/// What an open page asks for, again and again.
const BY_A_PAGE: [&str; 4] = ["/api/v1/overview", "/api/v1/samples?within_seconds=3600", "/api/v1/sinks", "/api/ready"];
const TIMES: usize = 10;

/// Everything that was said between the first failure and the first success after it.
async fn said_in_an_outage(server: Server, cluster: &postrider_testkit::Cluster) -> Vec<String> {
    until("it works", async || server.get("/api/v1/overview").await.status == 200).await;
    cluster.kill9();
    until("the outage is seen", async || server.get("/api/v1/overview").await.status == 503).await;
    for _ in 0..TIMES {
        for path in BY_A_PAGE {
            let reply = server.get(path).await;
            assert_eq!(reply.status, 503, "{path}: {}", reply.text);
        }
    }
    cluster.restart().await;
    until("it works again", async || server.get("/api/v1/overview").await.status == 200).await;
    server.hear("answers again");
    let said = server.stop();
    said.lines().skip_while(|line| !line.contains("cannot be asked")).map(str::to_owned).collect()
}

#[tokio::test]
async fn an_outage_is_two_lines_without_a_relay() {
    let cluster = postrider_testkit::Cluster::start().await;
    let outbox = Outbox::of(cluster.database().await);
    let said = said_in_an_outage(Server::serve(&outbox), &cluster).await;
    let stopping = said.iter().position(|line| line.contains("stopping")).unwrap_or(said.len());
    assert_eq!(stopping, 2, "{said:#?}");
    assert!(said[0].contains("default") && said[1].contains("answers again"), "{said:#?}");
}

#[tokio::test]
async fn an_outage_is_two_lines_beside_a_relay() {
    let cluster = postrider_testkit::Cluster::start().await;
    let outbox = Outbox::of(cluster.database().await);
    let said = said_in_an_outage(Server::run(&outbox, &[]), &cluster).await;
    let stopping = said.iter().position(|line| line.contains("stopping")).unwrap_or(said.len());
    assert_eq!(stopping, 2, "{said:#?}");
    assert!(said[1].contains("answers again"), "{said:#?}");
}
