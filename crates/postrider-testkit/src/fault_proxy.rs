//! A proxy in front of a PostgreSQL server that breaks what goes through it, when a test says so: it cuts connections,
//! refuses new ones, stands still, or lets a statement commit and keeps the answer to itself. Tests point a client at
//! its port instead of the server's. It never changes a byte that it passes on.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

use crate::protocol::{BUFFER_BYTES, Frame, Frames, REQUESTS, listen, startup_message};

/// A proxy that breaks things on demand; it ends, with its connections, when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

/// What a [`FaultProxy`] has done until now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Connections it passed on to the server.
    pub connections: u64,
    /// Connections it closed without asking the server.
    pub refused: u64,
    /// Connections it cut, whatever they were doing.
    pub cut: u64,
    /// Connections it cut after a commit, without passing the answer on.
    pub cut_after_commit: u64,
    /// Statements, or answers to commits, that it has kept to itself with the connection open.
    pub held: u64,
}

#[derive(Debug, Default)]
struct State {
    target_port: AtomicU16,
    sessions: Mutex<HashMap<u64, AbortHandle>>,
    stalled: watch::Sender<bool>,
    refusing: AtomicBool,
    /// How fast answers go on each connection; 0 is as fast as they come.
    bytes_per_second: AtomicU32,
    /// Which statements are still to be answered with a cut, and how many.
    ambush: Mutex<Ambush>,
    /// The next statement with this in it is not passed on.
    trap: Mutex<Option<String>>,
    connections: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
    cut_after_commit: AtomicU64,
    held: AtomicU64,
}

#[derive(Debug, Default)]
struct Ambush {
    /// Keep the connection open instead of cutting it.
    hold: bool,
    /// Goes up with each call, so that what an earlier one began is not given back to a later one.
    call: u64,
    statement: String,
    left: u64,
}

impl FaultProxy {
    /// Listens on a free port of 127.0.0.1 and connects each client to `target_port`, as long as the server is there.
    pub async fn start(target_port: u16) -> Self {
        let (listener, port) = listen().await;
        let state = Arc::new(State { target_port: AtomicU16::new(target_port), ..State::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { port, state, accepting }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database through this proxy, for the superuser.
    pub fn url(&self, database: &crate::Database) -> String {
        crate::database::url(self.port, "postgres", database.name())
    }

    /// Connects new clients to another server, as an address does that moves to a new primary. Connections that are there
    /// stay where they are.
    pub fn retarget(&self, port: u16) {
        self.state.target_port.store(port, Ordering::SeqCst);
    }

    /// Closes every connection, whatever is on its way in it.
    pub fn cut_all(&self) {
        let cut = self.state.end_sessions();
        self.state.cut.fetch_add(cut, Ordering::SeqCst);
    }

    /// Cuts between a commit and its answer, for the next `count` statements that contain `statement`: each is passed on,
    /// and when the server has said that it is done and no transaction is open, both sides are closed and the client
    /// hears nothing. Inside a transaction the statement is answered as usual, and the answer to the commit is not. What
    /// fails or is rolled back is answered as usual and does not count. Zero takes an earlier call back.
    pub fn cut_after_commit(&self, statement: &str, count: u64) {
        self.state.lay(statement, count, false);
    }

    /// The same for one statement, but the connection stays open and the client waits: whoever laid it sees it in
    /// [`FaultCounts::held`] and does what is to be done to a client that is in doubt. [`FaultProxy::cut_all`] ends it.
    pub fn hold_after_commit(&self, statement: &str) {
        self.state.lay(statement, 1, true);
    }

    /// Keeps the next statement that contains `statement` from the server, and the client waiting, as above.
    pub fn hold_before(&self, statement: &str) {
        *lock(&self.state.trap) = Some(statement.to_owned());
    }

    /// Takes back what [`FaultProxy::hold_before`] and the ambushes are still waiting for.
    pub fn take_back(&self) {
        self.state.lay("", 0, false);
        *lock(&self.state.trap) = None;
    }

    /// Connections that are open through it.
    pub fn open(&self) -> usize {
        let mut sessions = lock(&self.state.sessions);
        sessions.retain(|_, session| !session.is_finished());
        sessions.len()
    }

    /// How many of the cuts after a commit are still to come.
    pub fn cuts_to_come(&self) -> u64 {
        lock(&self.state.ambush).left
    }

    /// Whether new connections are closed at once. Those that are there stay.
    pub fn refuse(&self, refuse: bool) {
        self.state.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Lets the answers on each connection go no faster than this; 0 takes it back.
    pub fn slow_down(&self, bytes_per_second: u32) {
        self.state.bytes_per_second.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Whether everything stands still: connections stay open, and nothing goes either way until it is taken back.
    pub fn stall(&self, stall: bool) {
        self.state.stalled.send_replace(stall);
    }

    /// What it has done until now.
    pub fn counts(&self) -> FaultCounts {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        FaultCounts {
            connections: read(&self.state.connections),
            refused: read(&self.state.refused),
            cut: read(&self.state.cut),
            cut_after_commit: read(&self.state.cut_after_commit),
            held: read(&self.state.held),
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.state.end_sessions();
    }
}

impl State {
    fn lay(&self, statement: &str, count: u64, hold: bool) {
        let mut ambush = lock(&self.ambush);
        *ambush = Ambush { hold, call: ambush.call + 1, statement: statement.to_owned(), left: count };
    }

    /// Whether this statement is the one that is not to be passed on.
    fn traps(&self, statement: &[u8]) -> bool {
        let mut trap = lock(&self.trap);
        let hit = trap.as_ref().is_some_and(|sought| contains(statement, sought.as_bytes()));
        if hit {
            *trap = None;
        }
        hit
    }

    /// Counts it, and never returns: the connection ends when it is cut.
    async fn hold(&self) -> io::Result<()> {
        self.held.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }

    fn end_sessions(&self) -> u64 {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|_, session| !session.is_finished());
        sessions.drain().map(|(_, session)| session.abort()).count() as u64
    }

    /// Whether this statement is to be answered with a cut, and by which call.
    fn ambushes(&self, statement: &[u8]) -> Option<u64> {
        let mut ambush = lock(&self.ambush);
        let sought = ambush.statement.as_bytes();
        let hit = ambush.left > 0 && contains(statement, sought);
        ambush.left -= u64::from(hit);
        hit.then_some(ambush.call)
    }

    /// It did not commit: the next one may.
    fn give_back(&self, call: u64) {
        let mut ambush = lock(&self.ambush);
        ambush.left += u64::from(ambush.call == call);
    }

    /// As long as so many bytes take at the pace that was set.
    async fn at_its_pace(&self, bytes: usize) {
        let pace = self.bytes_per_second.load(Ordering::SeqCst);
        if pace > 0 {
            tokio::time::sleep(Duration::from_micros(bytes as u64 * 1_000_000 / u64::from(pace))).await;
        }
    }

    async fn not_stalled(&self) {
        // The sender is in `self`, so it cannot be gone.
        drop(self.stalled.subscribe().wait_for(|stalled| !stalled).await);
    }
}

fn contains(statement: &[u8], sought: &[u8]) -> bool {
    sought.is_empty() || statement.windows(sought.len()).any(|window| window == sought)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if state.refusing.load(Ordering::SeqCst) {
            state.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let id = state.connections.fetch_add(1, Ordering::SeqCst);
        let mut sessions = lock(&state.sessions);
        sessions.retain(|_, session| !session.is_finished());
        let session = tokio::spawn(serve(client, Arc::clone(&state)));
        sessions.insert(id, session.abort_handle());
    }
}

/// Both sockets are closed when it returns or is aborted.
async fn serve(mut client: TcpStream, state: Arc<State>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", state.target_port.load(Ordering::SeqCst))).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let startup = startup_message(&mut client).await?;
    state.not_stalled().await;
    server.write_all(&startup).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let asked = Mutex::new(Asked::default());
    let up = async {
        let mut requests = Requests::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 {
                return to_server.shutdown().await;
            }
            state.not_stalled().await;
            // Before the server sees it: the answer must find its question.
            if requests.note(&buffer[..length], &state, &asked) {
                return state.hold().await;
            }
            to_server.write_all(&buffer[..length]).await?;
        }
    };
    let down = async {
        let mut answers = Answers::default();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = from_server.read(&mut buffer).await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
            state.not_stalled().await;
            let Some(bytes) = answers.pass(&buffer[..length], &state, &asked) else {
                if lock(&state.ambush).hold {
                    return state.hold().await;
                }
                state.cut_after_commit.fetch_add(1, Ordering::SeqCst);
                return Err(io::Error::other("cut after a commit"));
            };
            to_client.write_all(&bytes).await?;
            state.at_its_pace(bytes.len()).await;
        }
    };
    tokio::try_join!(up, down)?;
    Ok(())
}

/// For each answer that is to come: whether it is to be kept back. The first is the one that ends the start-up.
#[derive(Debug)]
struct Asked(VecDeque<Option<u64>>);

impl Default for Asked {
    fn default() -> Self {
        Self(VecDeque::from([None]))
    }
}

/// The client's side: which statement a request carries.
#[derive(Debug, Default)]
struct Requests {
    frames: Frames,
    statement: Vec<u8>,
}

impl Requests {
    /// True: it holds the statement that is not to be passed on.
    fn note(&mut self, bytes: &[u8], state: &State, asked: &Mutex<Asked>) -> bool {
        let mut trapped = false;
        for Frame { kind, head } in self.frames.all(bytes) {
            if matches!(kind, b'P' | b'Q') {
                self.statement = head;
            }
            if REQUESTS.contains(&kind) {
                let statement = std::mem::take(&mut self.statement);
                trapped |= state.traps(&statement);
                let ambushed = state.ambushes(&statement);
                lock(asked).0.push_back(ambushed);
            }
        }
        trapped
    }
}

/// The server's side: where one answer ends, and whether it says that something was committed.
#[derive(Debug, Default)]
struct Answers {
    frames: Frames,
    kept_back: Vec<u8>,
    completed: bool,
    failed: bool,
    /// A statement of the open transaction is to be followed by a cut.
    in_transaction: Option<u64>,
}

impl Answers {
    /// What to pass on; `None`: a commit that nobody is to hear of.
    fn pass(&mut self, mut bytes: &[u8], state: &State, asked: &Mutex<Asked>) -> Option<Vec<u8>> {
        let mut passed = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let ended = self.frames.next(bytes);
            let (piece, rest) = bytes.split_at(ended.as_ref().map_or(bytes.len(), |(_, length)| *length));
            bytes = rest;
            let keep_back = self.in_transaction.is_some() || lock(asked).0.front().is_some_and(Option::is_some);
            if keep_back { &mut self.kept_back } else { &mut passed }.extend_from_slice(piece);
            let Some((frame, _)) = ended else { break };
            match (frame.kind, frame.head.as_slice()) {
                (b'C', tag) => self.completed |= !tag.starts_with(b"ROLLBACK"),
                (b'E', _) => self.failed = true,
                (b'Z', status) => {
                    let (completed, failed) = (std::mem::take(&mut self.completed), std::mem::take(&mut self.failed));
                    let mut call = lock(asked).0.pop_front().flatten();
                    if let Some(earlier) = self.in_transaction.take() {
                        // One cut for each transaction.
                        call.replace(earlier).into_iter().for_each(|call| state.give_back(call));
                    }
                    if let Some(call) = call {
                        match status {
                            b"I" if completed && !failed => return None,
                            b"T" => self.in_transaction = Some(call),
                            _ => state.give_back(call),
                        }
                        passed.append(&mut self.kept_back);
                    }
                }
                _ => {}
            }
        }
        Some(passed)
    }
}
