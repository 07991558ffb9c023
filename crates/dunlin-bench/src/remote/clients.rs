//! A thousand clients of one server, in two OS processes: each makes its calls one after the other.
//!
//! The reference is TCP with a line of JSON for each request and each reply: a connection for each client
//! ([`TCP_EACH`]), or one connection on which requests have ids ([`TCP_IDS`]). With dunlin each client is a
//! guest of an acceptor ([`GUESTS`]), or all use one shared caller ([`SHARED`]). All clients are there, and
//! have made one call, before the time is taken. The leader is the server.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use dunlin::{Bundle, Call, Caller, Par, Shared, spawn};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use super::over_dunlin::{join, names};
use super::sides::Sides;
use super::{Side, on_workers};
use crate::memory::resident_bytes;
use crate::program::Program;
use crate::programs::nanoseconds_each;

/// A connection for each client.
pub(crate) const TCP_EACH: &str = "tcp json, a connection each";
/// One connection.
pub(crate) const TCP_IDS: &str = "tcp json, one connection";
/// A guest for each client.
pub(crate) const GUESTS: &str = "dunlin, a guest each";
/// One shared caller.
pub(crate) const SHARED: &str = "dunlin, one shared caller";

pub(super) const EACH: [&str; 2] = [TCP_EACH, GUESTS];
pub(super) const ONE: [&str; 2] = [TCP_IDS, SHARED];

/// How many clients there are.
pub(crate) const CLIENTS: usize = 1_000;

#[derive(Bundle)]
struct Counter {
    next: Call<Ask, Answer>,
}

#[derive(Serialize, Deserialize)]
struct Ask {
    n: u64,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    n: u64,
}

/// A line on a connection that carries the calls of all clients.
#[derive(Serialize, Deserialize)]
struct Numbered {
    id: u64,
    n: u64,
}

/// Nanoseconds for each call, or bytes of the server for each client.
pub(super) fn run(side: &Side) -> Result<f64> {
    let names = names(side)?;
    let mut sides = Sides::start(side.leads(), 2, &names)?;
    let side = side.clone();
    on_workers(side.threads, async move {
        match (side.who.as_str(), side.leads()) {
            (TCP_EACH | TCP_IDS, true) => {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let here = listener.local_addr()?.to_string();
                tokio::spawn(accept(listener, side.who == TCP_IDS));
                serve(&side, &mut sides, &here)
            }
            (GUESTS | SHARED, true) => {
                let node = join(&names).await?;
                if side.who == GUESTS {
                    let mut guests = node.acceptor::<Counter>("counter").await?;
                    tokio::spawn(async move {
                        while let Ok(guest) = guests.recv().await {
                            spawn(count(guest.into_face()));
                        }
                    });
                } else {
                    let node = node.clone();
                    tokio::spawn(async move { count(node.server::<Counter>("counter").await?).await });
                }
                serve(&side, &mut sides, "names")
            }
            (TCP_EACH, false) => {
                let there = meet(&mut sides)?;
                let connect = || async {
                    let stream = TcpStream::connect(&there).await?;
                    stream.set_nodelay(true)?;
                    let (read, write) = stream.into_split();
                    Ok(Connection { read: BufReader::new(read), write, line: String::new() })
                };
                call_all(side.n, all(connect).await?).await
            }
            (TCP_IDS, false) => {
                let stream = TcpStream::connect(&meet(&mut sides)?).await?;
                stream.set_nodelay(true)?;
                let (calls, asked) = mpsc::channel(1024);
                tokio::spawn(multiplex(stream, asked));
                call_all(side.n, vec![calls; CLIENTS]).await
            }
            (GUESTS, false) => {
                meet(&mut sides)?;
                let node = join(&names).await?;
                let clients = all(|| async { Ok(node.client::<Counter>("counter").await?) }).await?;
                call_all(side.n, clients).await
            }
            (SHARED, false) => {
                meet(&mut sides)?;
                let node = join(&names).await?;
                let caller = node.client::<Counter>("counter").await?.next.share();
                call_all(side.n, vec![caller; CLIENTS]).await
            }
            (who, _) => bail!("there is no {who:?} in this binary"),
        }
    })
}

/// At the clients' side: where the server is.
fn meet(sides: &mut Sides) -> Result<String> {
    sides.meet(false, "clients", |_| {})?.into_iter().next().context("the leader is somewhere")
}

/// The leader's side: the clients report the time of each call.
fn serve(side: &Side, sides: &mut Sides, here: &str) -> Result<f64> {
    let before = resident_bytes()?;
    // The server needs this worker.
    let reported = tokio::task::block_in_place(|| {
        sides.meet(true, here, |_| {})?;
        sides.hear()
    })?;
    let each: f64 = reported.first().context("the clients report a time")?.parse()?;
    match side.program {
        Program::ClientsMemory => Ok(resident_bytes()?.saturating_sub(before) as f64 / CLIENTS as f64),
        _ => Ok(each),
    }
}

/// All clients, made by 50 at once.
async fn all<C, F: Future<Output = Result<C>>>(make: impl Fn() -> F) -> Result<Vec<C>> {
    let mut clients = Vec::new();
    while clients.len() < CLIENTS {
        for client in (0..50).map(|_| make()).collect::<Par<_>>().await {
            clients.push(client?);
        }
    }
    Ok(clients)
}

/// One client.
trait Client: Send + 'static {
    /// Asks the server for the number after `n`.
    fn call(&mut self, n: u64) -> impl Future<Output = Result<u64>> + Send;
}

impl Client for CounterClient {
    async fn call(&mut self, n: u64) -> Result<u64> {
        let answer = self.next.call(Ask { n }).await;
        Ok(answer.map_err(|error| anyhow::anyhow!("{error}"))?.n)
    }
}

impl Client for Shared<Caller<Ask, Answer>> {
    async fn call(&mut self, n: u64) -> Result<u64> {
        let answer = Self::call(self, Ask { n }).await;
        Ok(answer.map_err(|error| anyhow::anyhow!("{error}"))?.n)
    }
}

/// A client's own connection.
struct Connection {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    line: String,
}

impl Client for Connection {
    async fn call(&mut self, n: u64) -> Result<u64> {
        self.write.write_all(&line(&Ask { n })?).await?;
        self.line.clear();
        ensure!(self.read.read_line(&mut self.line).await? > 0, "the server has ended");
        Ok(serde_json::from_str::<Answer>(&self.line)?.n)
    }
}

/// A call of one of the clients that share a connection, and where its reply goes.
type Asked = (u64, oneshot::Sender<u64>);

impl Client for mpsc::Sender<Asked> {
    async fn call(&mut self, n: u64) -> Result<u64> {
        let (reply, answer) = oneshot::channel();
        self.send((n, reply)).await.ok().context("the connection has ended")?;
        Ok(answer.await?)
    }
}

/// Lets each client make a call, and then `n` calls; prints the nanoseconds of each of these, and waits until
/// the leader ends this process.
async fn call_all<C: Client>(n: u64, clients: Vec<C>) -> Result<f64> {
    let (ready, mut all_ready) = mpsc::channel::<()>(1);
    let (go, _) = broadcast::channel::<()>(1);
    let mut calling = JoinSet::new();
    for (number, mut client) in (0..).zip(clients) {
        let (ready, mut go) = (ready.clone(), go.subscribe());
        calling.spawn(async move {
            check(client.call(number).await?, number)?;
            drop(ready);
            go.recv().await?;
            for n in 0..n {
                check(client.call(n).await?, n)?;
            }
            anyhow::Ok(client)
        });
    }
    drop(ready);
    ensure!(all_ready.recv().await.is_none(), "nobody sends");
    let began = Instant::now();
    go.send(())?;
    let mut clients = Vec::new();
    while let Some(client) = calling.join_next().await {
        clients.push(client??);
    }
    println!("{}", nanoseconds_each(began.elapsed(), n * CLIENTS as u64));
    // With all clients: the server's memory is measured now.
    std::future::pending().await
}

fn check(answer: u64, n: u64) -> Result<()> {
    ensure!(answer == n + 1, "{answer} is the answer to {n}");
    Ok(())
}

/// The server of one client, or of those that share a caller.
async fn count(mut server: CounterServer) -> Result<()> {
    while let Ok(ask) = server.next.accept().await {
        let n = ask.n + 1;
        ask.reply(Answer { n }).map_err(|_| anyhow::anyhow!("the client has gone"))?;
    }
    Ok(())
}

fn line(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// The server of connections.
async fn accept(listener: TcpListener, numbered: bool) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        if numbered {
            tokio::spawn(answer::<Numbered>(stream, |ask| ask.n += 1));
        } else {
            tokio::spawn(answer::<Ask>(stream, |ask| ask.n += 1));
        }
    }
}

/// Answers the lines of one connection. Those that arrive together are answered together.
async fn answer<M: Serialize + for<'de> Deserialize<'de>>(stream: TcpStream, change: fn(&mut M)) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let (mut asked, mut answers) = (String::new(), Vec::new());
    while read.read_line(&mut asked).await? > 0 {
        let mut message: M = serde_json::from_str(&asked)?;
        change(&mut message);
        answers.extend(line(&message)?);
        asked.clear();
        if !read.buffer().contains(&b'\n') {
            write.write_all(&answers).await?;
            answers.clear();
        }
    }
    Ok(())
}

/// Carries the calls of all clients over one connection. Those that wait together are written together.
async fn multiplex(stream: TcpStream, mut asked: mpsc::Receiver<Asked>) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let waiting = Arc::new(Mutex::new(HashMap::<u64, oneshot::Sender<u64>>::new()));
    let answered = waiting.clone();
    tokio::spawn(async move {
        let (mut read, mut text) = (BufReader::new(read), String::new());
        while read.read_line(&mut text).await? > 0 {
            let Numbered { id, n } = serde_json::from_str(&text)?;
            let reply = lock(&answered).remove(&id).context("no call has this id")?;
            // A client waits for each of its calls.
            let _ = reply.send(n);
            text.clear();
        }
        anyhow::Ok(())
    });
    let (mut batch, mut id) = (Vec::new(), 0);
    while asked.recv_many(&mut batch, 1024).await > 0 {
        let mut lines = Vec::new();
        for (n, reply) in batch.drain(..) {
            id += 1;
            lock(&waiting).insert(id, reply);
            lines.extend(line(&Numbered { id, n })?);
        }
        write.write_all(&lines).await?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under it")
}
