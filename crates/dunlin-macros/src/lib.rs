//! The procedural macros of [dunlin](https://docs.rs/dunlin).
//!
//! Use them through `dunlin`, which re-exports them: what they expand to names items of that crate
//! (of `dunlin_core` too, for `alt!`).
//!
//! | macro | file | in one line |
//! |---|---|---|
//! | `alt!` (here [`__alt!`](__alt)) | `alt.rs` | awaits several operations, takes exactly one |
//! | [`#[derive(Bundle)]`](macro@Bundle) | `bundle.rs` | several channels as one: a client's face and a server's |
//! | [`#[main]`](macro@main) | `main_attr.rs` | an `async fn main` |
//!
//! `place.rs` makes the compiler's errors about an expansion point at users' code.
//!
//! Each file turns tokens into tokens, or into a `syn::Error` that points at the words to blame, by
//! pure functions that its tests call directly. The entry points below only convert.

use proc_macro::TokenStream;

mod alt;
#[cfg(test)]
mod blame;
mod bundle;
mod main_attr;
mod place;

/// Waits for several operations and takes exactly one: occam's `ALT`.
///
/// Called as `alt!`, a wrapper that `dunlin` and `dunlin_core` each define to say where their
/// support code is: `alt! { .. }` becomes `__alt! { ($crate) .. }`.
///
/// # Syntax
///
/// ```text
/// alt! {
///     biased;                                          // optional
///     pattern = operation => body,                     // a branch
///     pattern = operation, if condition => body,       // one that may be off
///     skip => body,                                    // optional, last
/// }
/// ```
///
/// - An **operation** is anything that implements `Branch`, *not yet awaited*: `rx.recv()`,
///   `rx.recv_extended()`, `tx.send_from(&mut slot)`, `shared.claim()`, `callee.accept()`,
///   `barrier.sync()`, `sleep(..)`, `future(f)` for any other future, or `&mut` to one that is to
///   outlive this choice. Temporaries made by its expression are gone once it is made.
/// - A **pattern** takes the operation's output and must be irrefutable, as a value that has been
///   received cannot be put back. A refutable one is refused with E0004; match in the body.
/// - A **condition** (a `bool`) that is false turns its branch off. Its operation is then not even
///   evaluated.
/// - A **body** is separated from what follows as an arm of a `match` is: a comma, unless it is a
///   block. It is ordinary code of the function around: `?`, `return`, `.await`, `break` and
///   `continue` do what they do outside. All bodies have one type, the value of the `alt!`.
/// - **`skip`** is taken when nothing is ready at once, so that the `alt!` does not wait.
/// - Without **`biased;`** the choice is fair: no branch that stays ready is passed over for ever.
///   With it, the first ready one in the order written is taken.
///
/// # Order of evaluation
///
/// First all conditions, in the order written; then the operations whose branch is on, likewise;
/// then the wait. When one has been taken, all operations and whatever the others could have
/// returned are dropped; only then does the body begin. So a condition may read what an operation
/// borrows, and a body may use every end that any operation borrowed (but for what its own output
/// still borrows, such as an extended receive).
///
/// If every branch is off and there is no `skip`, the `alt!` panics: it would wait for ever.
///
/// # Cancel safety
///
/// An `alt!` dropped while it waits has taken nothing: no message is lost, each slot given to
/// `send_from` holds its value (over a connection: once `settle` has said so), and only the places
/// in the queues are given up. What `future(f)` had done by then stays done; it is the one branch
/// that a choice cannot undo, chosen or not. Once a body has begun it is as cancel safe as the code
/// in it.
///
/// # Sending it to another thread
///
/// The future around an `alt!` is `Send` if its operations and their outputs are.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// async fn depot(
///     mut stop: Receiver<()>, mut jobs: Receiver<String>, mut out: Sender<String>,
/// ) -> Result {
///     let mut held = None;
///     loop {
///         alt! {
///             biased;
///             stopped = stop.recv() => return Ok(stopped?),
///             job = jobs.recv(), if held.is_none() => held = Some(job?),
///             sent = out.send_from(&mut held) => sent?, // off while the slot is empty
///             _ = sleep(Duration::from_secs(30)) => println!("quiet"),
///         }
///     }
/// }
///
/// async fn poll_once(jobs: &mut Receiver<String>) -> Option<String> {
///     alt! {
///         job = jobs.recv() => job.ok(),
///         skip => None,
///     }
/// }
/// ```
///
/// # Source
///
/// `ALT`, `PRI ALT`, `SKIP` and the boolean guard of occam.
#[doc(hidden)]
#[proc_macro]
pub fn __alt(input: TokenStream) -> TokenStream {
    or_error(alt::expand(input.into()))
}

/// Treats several channels as one: a struct with named fields becomes a bundle.
///
/// The struct is a description and is never made. Each field is one thing between a client and a
/// server, a type that implements `Pairing`: `ToServer<T>`, `ToClient<T>`, `Call<Q, A>`, a bundle,
/// or `Flip<B>` or `Share<B>` of one.
///
/// # What is made
///
/// For `struct Shop`, all as visible as `Shop` and its fields:
///
/// - `ShopClient` and `ShopServer`, the two **faces**: structs with the same field names, each
///   field an end (or a face). Documentation of a field is repeated on both.
/// - `Shop::pair()`, which makes all the channels: `(ShopClient, ShopServer)`. Fields are made in
///   the order written.
/// - `share(self)` on both faces, and `End` for them: a shared face is claimed whole.
/// - `Pairing` and `Bundle` for `Shop`, so that it nests and can be named on a node.
/// - `Serialize` and `Deserialize` for both faces if dunlin's feature `serde` is on, so that faces
///   travel, even over themselves.
///
/// # Attributes
///
/// - `#[policy(expression)]` on a field: the policy of this field's channels, anything that is
///   `Into<Policy>`, such as `fifo(8)`. Evaluated anew for each pair. Without it, they are as the
///   factory given to `Pairing::pair` says (a rendezvous, for `Shop::pair()`).
/// - `#[bundle(local)]` on the struct: the faces stay on this node and are not serialised. Needed
///   if the messages cannot be.
///
/// A bundle has no generic parameters.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// #[derive(Bundle)]
/// struct Till {
///     pay: ToServer<u64>,
///     receipt: ToClient<String>,
/// }
///
/// #[derive(Bundle)]
/// struct Shop {
///     #[policy(fifo(8))]
///     basket: ToServer<String>,
///     price: Call<String, u64>,
///     till: Till,                     // nested; `Flip<Till>` turns it round
///     depot: Share<Till>,             // clients get a `Shared<TillClient>`
///     referral: ToClient<ShopClient>, // a face, over itself
/// }
///
/// async fn buy(shop: &mut ShopClient, what: String) -> Result<String> {
///     let price = shop.price.call(what.clone()).await?;
///     shop.basket.send(what).await?;
///     shop.till.pay.send(price).await?;
///     Ok(shop.till.receipt.recv().await?)
/// }
///
/// let (client, server) = Shop::pair();
/// ```
#[proc_macro_derive(Bundle, attributes(bundle, policy))]
pub fn bundle(input: TokenStream) -> TokenStream {
    or_error(bundle::expand(input.into()))
}

/// Makes an `async fn main` the program's entry point.
///
/// The body becomes the first process. The runtime starts before it and stops when it returns; it
/// does not wait for the processes still running then, so await those that matter.
///
/// # Arguments
///
/// `workers = N`, a whole number from 1: how many threads run processes. Without it, the runtime
/// decides.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// #[dunlin::main(workers = 2)]
/// async fn main() -> Result {
///     let (mut tx, mut rx) = channel();
///     let greeter = spawn(async move { tx.send("hello").await });
///     println!("{}", rx.recv().await?);
///     greeter.await??;
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    main_attr::expand(arguments.into(), function.into()).into()
}

fn or_error(expansion: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expansion.unwrap_or_else(|error| error.into_compile_error()).into()
}
