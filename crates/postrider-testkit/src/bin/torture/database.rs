//! What happens to the database as a whole: it is killed and restarted, its tables are locked, its sessions ended and
//! its statements cancelled, it has no connection left, it fails with codes of its own, and its vacuum, statistics and
//! migrations do what they do at the worst moment. Called by the storm. Each fault takes itself back, and `mend` takes
//! back what a killed server left.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::{PostgresStore, Queue as _, Schema};
use postrider_testkit::{Cluster, Database};
use tokio_postgres::{Client, NoTls};

use crate::books::Books;
use crate::faults::{Fault, Injected};

/// Those that stop the whole outbox for a while, and those that go on beside it.
pub(crate) const STOPPING: [Fault; 8] = [
    Fault::TableLocked,
    Fault::BackendsTerminated,
    Fault::StatementsCancelled,
    Fault::StatementTimeout,
    Fault::ConnectionsExhausted,
    Fault::SerializationFailures,
    Fault::Deadlocks,
    Fault::ReadOnly,
];
pub(crate) const HOUSEKEEPING: [Fault; 8] = [
    Fault::PinnedSnapshot,
    Fault::AutovacuumOff,
    Fault::StaleStatistics,
    Fault::VacuumFull,
    Fault::Reindex,
    Fault::MigrateUp,
    Fault::Prune,
    Fault::ListenerStuck,
];
/// How long a fault without a measure of its own lasts.
const A_WHILE: Duration = Duration::from_millis(600);
/// A snapshot or a setting that others work beside.
const LONG: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 200;
/// Dedupe keys are known for so long while pruning is a fault: longer than any answer takes.
const DEDUPE_WINDOW: &str = "45 seconds";
const PATIENCE: Duration = Duration::from_secs(20);

/// Statements that fail on demand, with a code that is in a table. A trigger of the test's own, on what relays write.
pub(crate) const RAISE: &str = "
    create table if not exists storm_raise (code text not null);
    create or replace function storm_raise() returns trigger language plpgsql as $$
    declare v_code text;
    begin
        select code into v_code from public.storm_raise limit 1;
        if found and random() < 0.5 then
            raise exception 'the storm says %', v_code using errcode = v_code;
        end if;
        return null;
    end $$;
    create or replace trigger storm after insert on outbox.attempt for each statement execute function storm_raise();
    create or replace trigger storm after update on outbox.delivery for each statement execute function storm_raise();";

type Outcome = Result<(), tokio_postgres::Error>;

#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) cluster: Cluster,
    pub(crate) database: Database,
    pub(crate) injected: Arc<Injected>,
    pub(crate) books: Arc<Books>,
    pub(crate) lease: Duration,
    pub(crate) outages: Arc<Mutex<Vec<(Duration, Duration)>>>,
}

impl Faulty {
    /// A session of the storm's own, which may write whatever the database's settings are.
    pub(crate) async fn session(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.database.url(), NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("set default_transaction_read_only = off; set statement_timeout = 0").await?;
        Ok(client)
    }

    /// Kills every process of the server, or restarts it in order. Returns when it answers again.
    pub(crate) async fn restart(&self, fault: Fault, down_for: Duration) {
        let from = self.books.now();
        if fault == Fault::ServerKilled {
            let cluster = self.cluster.clone();
            let killed = tokio::task::spawn_blocking(move || cluster.kill9()).await;
            killed.expect("killing a server of ours does not panic");
            tokio::time::sleep(down_for).await;
        }
        self.cluster.restart().await;
        self.injected.count(fault);
        self.outage(from);
    }

    fn outage(&self, from: Duration) {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).push((from, self.books.now()));
    }

    /// Injects one, and waits until it is over. An error is another fault's doing.
    pub(crate) async fn strike(&self, fault: Fault) {
        let from = self.books.now();
        drop(tokio::time::timeout(PATIENCE, self.try_strike(fault)).await);
        if STOPPING.contains(&fault) {
            self.outage(from);
        }
    }

    async fn try_strike(&self, fault: Fault) -> Outcome {
        let client = self.session().await?;
        match fault {
            Fault::TableLocked => {
                client.batch_execute("begin; lock table outbox.delivery in access exclusive mode").await?;
                self.injected.count(fault);
                tokio::time::sleep(self.lease + A_WHILE).await;
                client.batch_execute("rollback").await
            }
            Fault::BackendsTerminated => self.signal(&client, "pg_terminate_backend", 10, 200, fault).await,
            Fault::StatementsCancelled => self.signal(&client, "pg_cancel_backend", 20, 50, fault).await,
            Fault::StatementTimeout => self.setting(&client, fault, "statement_timeout = '20ms'", A_WHILE).await,
            Fault::ReadOnly => self.setting(&client, fault, "default_transaction_read_only = on", 2 * A_WHILE).await,
            Fault::ConnectionsExhausted => self.exhaust(fault).await,
            Fault::SerializationFailures => self.raise(&client, "40001", fault).await,
            Fault::Deadlocks => self.raise(&client, "40P01", fault).await,
            _ => self.keep_house(&client, fault).await,
        }
    }

    async fn keep_house(&self, client: &Client, fault: Fault) -> Outcome {
        let statement = match fault {
            Fault::PinnedSnapshot => {
                client
                    .batch_execute("begin isolation level repeatable read; select from outbox.delivery limit 1")
                    .await?;
                self.injected.count(fault);
                tokio::time::sleep(LONG).await;
                return client.batch_execute("rollback").await;
            }
            Fault::AutovacuumOff => {
                client.batch_execute("alter system set autovacuum = off").await?;
                client.batch_execute("select pg_reload_conf()").await?;
                self.injected.count(fault);
                tokio::time::sleep(LONG).await;
                client.batch_execute("alter system reset autovacuum").await?;
                return client.batch_execute("select pg_reload_conf()").await;
            }
            Fault::MigrateUp => return self.migrate(fault).await,
            Fault::Prune => return self.prune(client, fault).await,
            Fault::ListenerStuck => return self.stuck_listener(client, fault).await,
            Fault::StaleStatistics => {
                "delete from pg_statistic where starelid = 'outbox.delivery'::regclass; \
                 update pg_class set reltuples = case when random() < 0.5 then 0 else 1e8 end, \
                 relpages = case when random() < 0.5 then 0 else 1e6 end \
                 where oid in ('outbox.delivery'::regclass, 'outbox.delivery_due'::regclass, 'outbox.delivery_lane'::regclass)"
            }
            Fault::VacuumFull => "vacuum full outbox.delivery",
            _ => "reindex table concurrently outbox.delivery",
        };
        client.batch_execute(statement).await?;
        self.injected.count(fault);
        Ok(())
    }

    /// To every other session of this database.
    async fn signal(&self, client: &Client, function: &str, times: u32, every_ms: u64, fault: Fault) -> Outcome {
        let statement = format!(
            "select {function}(pid) from pg_stat_activity where datname = current_database() \
             and pid <> pg_backend_pid() and application_name <> ''"
        );
        for _ in 0..times {
            client.batch_execute(&statement).await?;
            self.injected.count(fault);
            tokio::time::sleep(Duration::from_millis(every_ms)).await;
        }
        Ok(())
    }

    /// For new sessions, which all get to be.
    async fn setting(&self, client: &Client, fault: Fault, setting: &str, time: Duration) -> Outcome {
        let name = self.database.name();
        client.batch_execute(&format!("alter database {name} set {setting}")).await?;
        self.end_sessions(client).await?;
        self.injected.count(fault);
        tokio::time::sleep(time).await;
        client.batch_execute(&format!("alter database {name} reset all")).await?;
        self.end_sessions(client).await
    }

    async fn end_sessions(&self, client: &Client) -> Outcome {
        let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                      where datname = current_database() and pid <> pg_backend_pid() and application_name <> ''";
        client.batch_execute(others).await
    }

    async fn exhaust(&self, fault: Fault) -> Outcome {
        let mut sessions = Vec::new();
        while sessions.len() < MOST_CONNECTIONS {
            match tokio_postgres::connect(&self.database.url(), NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    sessions.push(client);
                }
                Err(error) => {
                    if error.code().is_some_and(|code| code.code() == "53300") {
                        self.injected.count(fault);
                    }
                    break;
                }
            }
        }
        tokio::time::sleep(A_WHILE).await;
        Ok(())
    }

    async fn raise(&self, client: &Client, code: &str, fault: Fault) -> Outcome {
        client.execute("insert into storm_raise values ($1)", &[&code]).await?;
        self.injected.count(fault);
        tokio::time::sleep(A_WHILE).await;
        client.execute("delete from storm_raise", &[]).await.map(drop)
    }

    async fn migrate(&self, fault: Fault) -> Outcome {
        let mut client = self.session().await?;
        if postrider::migrate::up(&mut client, &Schema::default()).await.is_ok() {
            self.injected.count(fault);
        }
        Ok(())
    }

    async fn prune(&self, client: &Client, fault: Fault) -> Outcome {
        let window = format!("update outbox.setting set dedupe_window = '{DEDUPE_WINDOW}'");
        client.batch_execute(&window).await?;
        let Ok(store) = PostgresStore::open(&self.database.url(), Schema::default()) else { return Ok(()) };
        if store.prune().await.is_ok() && store.make_partitions().await.is_ok() {
            self.injected.count(fault);
        }
        Ok(())
    }

    /// It keeps the queue of notifications from being emptied.
    async fn stuck_listener(&self, client: &Client, fault: Fault) -> Outcome {
        client.batch_execute("listen storm; begin; select 1").await?;
        let notifier = self.session().await?;
        notifier
            .batch_execute("select pg_notify('storm', repeat('x', 7000) || n) from generate_series(1, 1000) n")
            .await?;
        self.injected.count(fault);
        tokio::time::sleep(LONG / 2).await;
        client.batch_execute("rollback").await
    }

    /// What a killed server may have kept.
    pub(crate) async fn mend(&self) -> Outcome {
        let client = self.session().await?;
        client.batch_execute(&format!("alter database {} reset all", self.database.name())).await?;
        client.batch_execute("delete from storm_raise").await?;
        client.batch_execute("alter system reset autovacuum").await?;
        client.batch_execute("select pg_reload_conf()").await?;
        self.end_sessions(&client).await
    }
}
