//! Uses of scopes that must not compile. Each block is a doc test that must fail with the named error.
//!
//! Correct uses compile:
//! ```
//! # use dunlin::prelude::*;
//! #[process(propagate)]
//! async fn f<T: Send + Copy + 'static>(
//!     #[receiver("n")] mut rx: Receiver<T>,
//!     #[sender("m")] mut tx: Sender<T>,
//! ) -> Result {
//!     Ok(tx.send(rx.recv().await?).await?)
//! }
//! fn g(scope: &Scope) {
//!     scope.fork(f::<u8>());
//! }
//! ```
//! An annotation that gives another end:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(#[sender("n")] rx: Receiver<u8>) {}
//! ```
//! A face in place of a channel:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(#[client("n")] tx: Sender<u8>) {}
//! ```
//! A carried type must be able to move to another thread:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(#[sender("n")] tx: Sender<std::rc::Rc<u8>>) {}
//! ```
//! and so must the process:
//! ```compile_fail
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f() {
//!     let held = std::rc::Rc::new(1);
//!     sleep(Duration::ZERO).await;
//!     drop(held);
//! }
//! ```
//! A generic process owns what it uses:
//! ```compile_fail,E0310
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f<T: Send>(value: T) {}
//! ```
//! An ending that is not visible:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process(propagate)]
//! async fn f(#[sender("n")] tx: Sender<u8>) {}
//! ```
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process(propagate)]
//! async fn f(#[sender("n")] tx: Sender<u8>) -> Result<(), String> {
//!     Ok(())
//! }
//! ```
//! A wired end is not an argument:
//! ```compile_fail,E0061
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(#[sender("n")] tx: Sender<u8>) {}
//! fn g(scope: &Scope, tx: Sender<u8>) {
//!     scope.fork(f(tx));
//! }
//! ```
//! A process that borrows:
//! ```compile_fail
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(text: &str) {}
//! ```
//! ```compile_fail,E0373
//! # use dunlin::prelude::*;
//! async fn f(scope: &Scope) {
//!     let text = String::new();
//!     scope.fork(async { drop(&text) });
//! }
//! ```
//! An end that is not portable cannot be requested from a node:
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! #[process]
//! async fn f(#[sender("n", portable)] tx: Sender<std::sync::mpsc::Sender<u8>>) {}
//! ```
//! ```compile_fail,E0277
//! # use dunlin::prelude::*;
//! async fn f(scope: &Scope) {
//!     let _ = scope.sender::<std::sync::mpsc::Sender<u8>>("n").portable();
//! }
//! ```
