//! A program decides which nodes may connect with its own.
#![cfg(feature = "net")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dunlin::node::{Applicant, NodeBuilder, NodeEvent};
use dunlin::prelude::*;

/// The next event for which `f` returns a value.
async fn next<R>(events: &mut Receiver<NodeEvent>, mut f: impl FnMut(NodeEvent) -> Option<R>) -> Result<R> {
    loop {
        if let Some(wanted) = f(events.recv().await?) {
            return Ok(wanted);
        }
    }
}

/// Two nodes that each serve names of their own, so that neither looks for the other before it is dialled.
async fn strangers(test: &str, here: NodeBuilder, there: NodeBuilder) -> Result<[Node; 2]> {
    let own = |node: NodeBuilder, at: &str| node.app(test).no_config().names(&format!("memory:{test}-{at}"));
    let here = own(here, "here").listen("127.0.0.1:0").join().await?;
    Ok([here, own(there, "there").listen("127.0.0.1:0").join().await?])
}

/// The address at which the first node serves this name.
fn krill_at(node: &Node) -> String {
    format!("{}/krill", node.listening()[0])
}

/// Sends one value from the second node to the first, which the second dials.
async fn meets(here: &Node, there: &Node) -> Result<u8> {
    let (mut rx, mut tx) = (here.receiver::<u8>("krill").await?, there.sender::<u8>(&krill_at(here)).await?);
    let (sent, got) = par!(tx.send(7), rx.recv());
    sent?;
    Ok(got?)
}

#[test]
fn refused_node_receives_reason_and_connects_once_admitted() -> Result<()> {
    dunlin::block_on(async {
        let admits = Arc::new(AtomicBool::new(false));
        let asked = admits.clone();
        let choosy = Node::builder().authorize(move |_| asked.load(Ordering::SeqCst));
        let [here, there] = strangers("refuses", choosy, Node::builder()).await?;
        let (mut events, mut told) = (here.events(), there.events());
        let error = there.sender::<u8>(&krill_at(&here)).await.unwrap_err().to_string();
        assert!(error.contains("the node does not admit this one"), "{error}");
        let why = next(&mut told, |event| match event {
            NodeEvent::Unwelcome { why, .. } => Some(why),
            _ => None,
        });
        assert_eq!(why.await?, "the node does not admit this one");
        let why = next(&mut events, |event| match event {
            NodeEvent::Stranger { why, .. } => Some(why),
            _ => None,
        });
        assert_eq!(why.await?, "the program of this node does not admit the dialler");
        assert_eq!(here.peers().len(), 0, "it has a connection");
        admits.store(true, Ordering::SeqCst);
        assert_eq!(meets(&here, &there).await?, 7);
        Ok(())
    })
}

#[test]
fn dialled_node_has_to_be_admitted_too() -> Result<()> {
    dunlin::block_on(async {
        let seen = Arc::new(Mutex::new(Vec::<Applicant>::new()));
        let applicants = seen.clone();
        let choosy = Node::builder().authorize(move |applicant| {
            applicants.lock().unwrap().push(applicant.clone());
            false
        });
        let [here, there] = strangers("dials", Node::builder(), choosy).await?;
        let mut told = there.events();
        let error = there.sender::<u8>(&krill_at(&here)).await.unwrap_err().to_string();
        assert!(error.contains("this node does not admit the other one"), "{error}");
        let unwelcome = next(&mut told, |event| match event {
            NodeEvent::Unwelcome { at, why } if why.starts_with("this node does not admit node") => Some(at),
            _ => None,
        });
        assert_eq!(unwelcome.await?, here.listening()[0]);
        let seen = seen.lock().unwrap();
        assert_eq!((seen[0].dialled(), seen[0].is_local()), (Some(&*here.listening()[0]), true));
        assert_eq!(seen[0].identity(), None);
        Ok(())
    })
}

#[cfg(unix)]
#[test]
fn kernel_identifies_applicant_over_unix_socket() -> Result<()> {
    use std::sync::atomic::AtomicUsize;

    use dunlin::net::PeerIdentity;

    dunlin::block_on(async {
        let folder = std::env::temp_dir().join(format!("dunlin-authorize-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let scheme = format!("unix:{}/", folder.display());
        let own = rustix::process::getuid().as_raw();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let same_user = move |applicant: &Applicant| {
            counted.fetch_add(1, Ordering::SeqCst);
            matches!(applicant.identity(), Some(PeerIdentity::Process { uid, .. }) if *uid == own)
        };
        let builder = |at: &str| {
            let node = Node::builder().app("own").no_config().names(&format!("{scheme}names"));
            node.listen(&format!("{scheme}{at}"))
        };
        let here = builder("here").authorize(same_user.clone()).join().await?;
        let there = builder("there").authorize(same_user).join().await?;
        let (mut rx, mut tx) = (here.receiver::<u8>("krill").await?, there.sender::<u8>("krill").await?);
        let (sent, got) = par!(tx.send(7), rx.recv());
        sent?;
        assert_eq!(got?, 7);
        assert!(count.load(Ordering::SeqCst) >= 2, "each is asked about the other");
        drop((here.leave().await, there.leave().await));
        std::fs::remove_dir_all(folder)?;
        Ok(())
    })
}

#[test]
fn panicking_authorize_refuses_applicant_and_node_keeps_running() -> Result<()> {
    dunlin::block_on(async {
        let panics = Arc::new(AtomicBool::new(true));
        let asked = panics.clone();
        let choosy = Node::builder().authorize(move |_| !asked.load(Ordering::SeqCst) || panic!("no krill"));
        let [here, there] = strangers("panics", choosy, Node::builder()).await?;
        let error = there.sender::<u8>(&krill_at(&here)).await.unwrap_err().to_string();
        assert!(error.contains("the node does not admit this one"), "{error}");
        panics.store(false, Ordering::SeqCst);
        assert_eq!(meets(&here, &there).await?, 7);
        Ok(())
    })
}
