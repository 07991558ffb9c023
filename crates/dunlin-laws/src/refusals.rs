//! Laws that the type system enforces. Each block is a doc test that must fail to compile with the named
//! error.
//!
//! A choice with the same end twice:
//! ```compile_fail,E0499
//! # use dunlin::prelude::*;
//! # async fn f(mut rx: Receiver<u8>) {
//! alt! { a = rx.recv() => drop(a), b = rx.next() => drop(b) }
//! # }
//! ```
//! The same for a choice that is built at run time:
//! ```compile_fail,E0499
//! # use dunlin::prelude::*;
//! # async fn f(mut tx: Sender<u8>) {
//! let choice = Choice::fair().on(tx.send(1), drop).on(tx.send(2), drop);
//! # choice.await;
//! # }
//! ```
//! Two sends from one slot:
//! ```compile_fail,E0499
//! # use dunlin::prelude::*;
//! # async fn f(mut a: Sender<String>, mut b: Sender<String>) {
//! let mut slot = Some("krill".to_string());
//! alt! { sent = a.send_from(&mut slot) => drop(sent), sent = b.send_from(&mut slot) => drop(sent) }
//! # }
//! ```
//! A send in a choice whose value would be lost if the branch is not chosen:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! # async fn f(mut tx: Sender<String>, mut rx: Receiver<u8>) {
//! alt! { sent = tx.send("krill".to_string()) => drop(sent), got = rx.recv() => drop(got) }
//! # }
//! ```
//! A refutable pattern, which could refuse a value that has already been received:
//! ```compile_fail,E0004
//! # use dunlin::prelude::*;
//! # async fn f(mut rx: Receiver<u8>) {
//! alt! { Ok(value) = rx.recv() => drop(value), skip => {} }
//! # }
//! ```
//! A future without `future(..)` around it:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! # async fn f(mut rx: Receiver<u8>) {
//! alt! { got = rx.recv() => drop(got), () = std::future::ready(()) => {} }
//! # }
//! ```
//! An end that was moved away:
//! ```compile_fail,E0382
//! # use dunlin::prelude::*;
//! # async fn f(mut tx: Sender<u8>, mut carrier: Sender<Sender<u8>>) {
//! carrier.send(tx).await.unwrap();
//! tx.send(1).await.unwrap();
//! # }
//! ```
//! An end while its own operation is in progress:
//! ```compile_fail,E0499
//! # use dunlin::prelude::*;
//! # async fn f(mut rx: Receiver<u8>) {
//! let held = rx.recv_extended().await.unwrap();
//! let next = rx.recv().await;
//! drop(held);
//! # }
//! ```
//! Two claims through one handle:
//! ```compile_fail,E0499
//! # use dunlin::prelude::*;
//! # async fn f(mut tx: Shared<Sender<u8>>) {
//! let held = tx.claim().await.unwrap();
//! let again = tx.claim().await.unwrap();
//! drop((held, again));
//! # }
//! ```
//! A clone of an end that is not shared:
//! ```compile_fail,E0599
//! # use dunlin::prelude::*;
//! # fn f(rx: Receiver<u8>) {
//! let second = rx.clone();
//! # }
//! ```
//! Poison by an end without that power, and its conversion back:
//! ```compile_fail,E0599
//! # use dunlin::prelude::*;
//! # fn f(rx: Receiver<u8, NoPoison>) {
//! rx.poison("mine");
//! # }
//! ```
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! # fn f(tx: Sender<u8, NoPoison>) {
//! let powerful: Sender<u8> = tx.into();
//! # }
//! ```
//! A process that moves a type that is not `Send` to another thread:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! # async fn f(mut tx: Sender<std::rc::Rc<u8>>) {
//! spawn(async move { tx.send(std::rc::Rc::new(1)).await });
//! # }
//! ```
//! A type that serde cannot serialize, in a message to another node, also by a broadcast:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! # async fn f(node: Node) -> Result {
//! drop(node.sender::<dunlin::Joiner<std::fs::File>>("clocks").await?);
//! # Ok(())
//! # }
//! ```
