//! Names of scopes that a rule declares on the network.

use std::future::pending;

use dunlin::ExitReason;
use dunlin::prelude::*;
use dunlin::sim::Sim;

use crate::scope_support::{not_started, refused, unfinished};

const SOON: Duration = Duration::from_secs(60);

#[process]
async fn thermometer(#[sender("public.readings", portable)] mut out: Sender<f64>) -> Result {
    Ok(out.send(21.5).await?)
}

#[process]
async fn display(
    #[receiver("public.readings", fifo(2), portable)] mut readings: Receiver<f64>,
    #[sender("lines")] mut lines: Sender<String>,
) -> Result {
    while let Some(reading) = readings.next().await? {
        lines.send(format!("{reading}")).await?;
    }
    Ok(())
}

fn public(name: &str) -> bool {
    name.starts_with("public.")
}

#[test]
fn scope_rule_declares_names_on_the_network() {
    for seed in 0..20 {
        Sim::new(seed)
            .run(async {
                let (a, b) = (Node::join("weather").await?, Node::join("weather").await?);
                let (here, there) = (Scope::new(), Scope::new());
                here.network(&a, public);
                there.network(&b, public);
                there.name::<String>("lines", fifo(1));
                here.name::<u8>("lines", fifo(1)); // unknown to the other node
                // The rule also applies in the scopes within.
                let sending = here.child().fork(thermometer());
                there.fork(display());
                let mut lines = there.receiver::<String>("lines").await?;
                assert_eq!(lines.recv().await?, "21.5");
                sending.await??;
                assert_eq!(lines.next().await?, None); // the thermometer has left, on its node
                here.finish(SOON).await?;
                there.finish(SOON).await
            })
            .unwrap();
    }
}

#[test]
fn a_manual_join_declares_that_it_is_portable() {
    Sim::new(7)
        .run(async {
            let (a, b) = (Node::join("weather").await?, Node::join("weather").await?);
            let scope = Scope::new();
            scope.network(&a, public);
            let error = refused(scope.sender::<f64>("public.n").await);
            assert!(matches!(&error, ScopeError::NotPortable { name, .. } if name == "public.n"), "{error}");
            let mut tx = scope.sender::<f64>("public.n").portable().await?;
            let mut rx = b.receiver::<f64>("public.n").await?;
            let (sent, received) = par!(tx.send(0.5), rx.recv());
            sent?;
            assert_eq!(received?, 0.5);

            // The policy is declared, too.
            let _rx = scope.receiver::<u8>("public.p").policy(fifo(1)).portable().await?;
            b.sender::<u8>("public.p").await?.send(1).within(SOON).await?;
            scope.name::<u8>("public.q", fifo(1));
            let _rx = scope.receiver::<u8>("public.q").portable().await?;
            b.sender::<u8>("public.q").await?.send(1).within(SOON).await?;
            let wrong = refused(scope.receiver::<u16>("public.q").portable().await);
            assert!(matches!(wrong, ScopeError::Type { .. }), "{wrong}");

            // A process whose messages cannot leave gets an error; `&'static str` cannot be decoded from
            // bytes.
            #[process]
            async fn local(#[sender("public.str")] _tx: Sender<&'static str>) {}
            let exit = scope.fork(local()).await.unwrap_err();
            assert!(matches!(not_started(exit), ScopeError::NotPortable { .. }));

            // An isolated scope has its own names, even if they are equal.
            let isolated = scope.isolated();
            let _rx = isolated.receiver::<&'static str>("public.str").await?;
            assert_eq!(isolated.waiting().len(), 1);

            // A refusal by the node has a type.
            let error = refused(scope.sender::<f64>("public.n").portable().await);
            assert!(matches!(error, ScopeError::Name(_)), "{error}");
            Result::<()>::Ok(())
        })
        .unwrap();
}

#[test]
fn scope_requests_a_shared_end_from_its_node_once() {
    #[process]
    async fn say(#[sender("public.n", portable)] mut tx: Shared<Sender<u8>>, n: u8) -> Result {
        Ok(tx.send(n).await?)
    }
    for seed in 0..20 {
        Sim::new(seed)
            .run(async {
                let (a, b) = (Node::join("weather").await?, Node::join("weather").await?);
                let scope = Scope::new();
                scope.network(&a, public);
                let (one, other) = scope.child().fork_all((say(1), say(2)));
                let mut third = scope.sender::<u8>("public.n").portable().shared().await?;
                let mut rx = b.receiver::<u8>("public.n").policy(fifo(3)).await?;
                third.send(3).await?;
                drop(third);
                let mut sum = 0;
                while let Some(n) = rx.next().await? {
                    sum += n;
                }
                assert_eq!(sum, 6);
                one.await??;
                other.await??;
                let error = refused(scope.sender::<u8>("public.n").shared().portable().await);
                assert_eq!(error, ScopeError::Left { name: "public.n".into(), face: "sender" });
                Result::<()>::Ok(())
            })
            .unwrap();
    }
}

#[derive(Bundle)]
struct Ask {
    word: Call<String, usize>,
}

#[test]
fn bundles_of_scopes_are_declared_on_the_network() {
    #[process]
    async fn keeper(#[server("public.ask", portable)] mut ask: AskServer) -> Result {
        let request = ask.word.accept().await?;
        let n = request.len();
        let _ = request.reply(n);
        Ok(())
    }
    #[process]
    async fn asker(#[client("public.ask", portable)] mut ask: AskClient) -> Result<usize> {
        Ok(ask.word.call("krill".into()).await?)
    }
    for seed in 0..20 {
        Sim::new(seed)
            .run(async {
                let (a, b) = (Node::join("words").await?, Node::join("words").await?);
                let (here, there) = (Scope::new(), Scope::new());
                here.network(&a, public);
                there.network(&b, public);
                // Both wait: no process that joined on one node runs before the other's node has answered.
                let (asked, ()) = (here.fork(asker()), drop(there.fork(keeper())));
                assert_eq!(asked.await??, 5);
                Result::<()>::Ok(())
            })
            .unwrap();
    }
}

#[test]
fn places_are_the_simulation_s() {
    Sim::new(3)
        .run(async {
            let scope = Scope::new();
            let press = scope.on(Place::workers(2));
            let here = std::thread::current().id();
            assert_eq!(press.fork(async { std::thread::current().id() }).await?, here);
            let idle = press.fork(pending::<()>());
            assert_eq!(unfinished(&scope).await.stragglers().len(), 1);
            scope.cancel();
            assert_eq!(idle.await.unwrap_err().reason, ExitReason::Cancelled);
            scope.finish(SOON).await
        })
        .unwrap();
}
