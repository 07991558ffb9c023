//! The procedural macros of [dunlin](https://docs.rs/dunlin).
//!
//! Use them through `dunlin`, which re-exports them: their expansions name items of that crate (of
//! `dunlin_core` too, for `alt!`).
//!
//! | macro | file | in one line |
//! |---|---|---|
//! | `alt!` (here [`__alt!`](__alt)) | `alt.rs` | awaits several operations, takes exactly one |
//! | `receive!` (here [`__receive!`](__receive)) | `receive.rs` | receives the first message that fits |
//! | [`#[derive(Bundle)]`](macro@Bundle) | `bundle.rs` | several channels as one: a client's face and a server's |
//! | [`#[main]`](macro@main), [`#[test]`](macro@test) | `main_attr.rs` | an `async fn main`, an `async` test |
//! | [`#[remote]`](macro@remote) | `remote.rs` | a function that other nodes can start, or another process of the system runs |
//! | [`#[process]`](macro@process) | `process.rs` | a process that joins its ends in a scope by itself |
//!
//! `arm.rs` has what the arms of `alt!` and `receive!` have in common. `place.rs` makes the compiler's errors
//! about an expansion point at users' code.
//!
//! Each file converts tokens to tokens, or to a `syn::Error` that points at the words to blame, with pure
//! functions that its tests call directly. The entry points below only convert.

use proc_macro::TokenStream;

mod alt;
mod arm;
#[cfg(test)]
mod blame;
mod bundle;
mod main_attr;
mod place;
mod process;
mod receive;
mod remote;

/// Waits for several operations and takes exactly one: occam's `ALT`.
///
/// Called as `alt!`, a wrapper that `dunlin` and `dunlin_core` each define to name the crate with their
/// support code: `alt! { .. }` becomes `__alt! { ($crate) .. }`.
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
///   `rx.recv_extended()`, `tx.send_from(&mut slot)`, `shared.claim()`, `callee.accept()`, `barrier.sync()`,
///   `sleep(..)`, `future(f)` for any other future. Borrow an operation that should outlive this choice:
///   `&mut operation` if it is `Unpin`, as a `Timer` and an `Interval` are, otherwise `pinned.as_mut()`.
///   Temporaries of the operation's expression are dropped once the operation is made.
/// - A **pattern** takes the operation's output. It must be irrefutable, because a received value cannot be
///   put back. The compiler refuses a refutable pattern with E0004; match in the body instead.
/// - A **condition** (a `bool`) that is false turns its branch off. The operation of such a branch is not
///   evaluated.
/// - A **body** is separated from the next arm as in a `match`: by a comma, unless it is a block. It is
///   ordinary code of the enclosing function: `?`, `return`, `.await`, `break` and `continue` work as they do
///   outside. All bodies have one type, the type of the `alt!`.
/// - **`skip`** is taken if no operation is ready at once, so the `alt!` does not wait.
/// - Without **`biased;`** the choice is fair: it eventually takes each branch that stays ready. With it, the
///   choice takes the first ready branch in the order written.
///
/// # Order of evaluation
///
/// `alt!` evaluates all conditions first, in the order written, then the operations whose branches are on,
/// also in order, and then waits. When it has taken one operation, it drops all operations and whatever the
/// other branches could have returned; only then does the body begin. So a condition may read what an
/// operation borrows, and a body may use every end that any operation borrowed (except what its own output
/// still borrows, such as an extended receive).
///
/// If every branch is off and there is no `skip`, the `alt!` panics: it would wait for ever.
///
/// # Cancel safety
///
/// An `alt!` dropped while it waits has taken nothing: no message is lost, each slot given to `send_from`
/// holds its value (over a connection: once `settle` has returned it), and only the places in the queues are
/// given up. The effects of `future(f)` until then remain: it is the one branch that a choice cannot undo,
/// chosen or not. Once a body has begun, it is as cancel safe as the code in it.
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

/// Receives the first message that fits one of several patterns. `dunlin` documents it, as `receive!`, and
/// defines the wrapper that names the crate with the support code.
#[doc(hidden)]
#[proc_macro]
pub fn __receive(input: TokenStream) -> TokenStream {
    or_error(receive::expand(input.into()))
}

/// Treats several channels as one: a struct with named fields becomes a bundle.
///
/// The struct is a description and is never constructed. Each field is one connection between a client and a
/// server, a type that implements `Pairing`: `ToServer<T>`, `ToClient<T>`, `Call<Q, A>`, a bundle, or
/// `Flip<B>` or `Share<B>` of a bundle.
///
/// # What is generated
///
/// For `struct Shop`, with the visibility of `Shop` and its fields:
///
/// - `ShopClient` and `ShopServer`, the two **faces**: structs with the same field names, in which each field
///   is an end (or a face). Both repeat the documentation of each field.
/// - `Shop::pair()`, which makes all the channels: `(ShopClient, ShopServer)`. It makes the fields in the
///   order written.
/// - `share(self)` on both faces, and `End` for them: a claim of a shared face claims all of it.
/// - `Pairing` and `Bundle` for `Shop`, so that it nests and can be named on a node.
/// - `Serialize` and `Deserialize` for both faces if dunlin's feature `serde` is on, so that faces can move,
///   even over themselves.
///
/// # Attributes
///
/// - `#[policy(expression)]` on a field: the policy of this field's channels, anything that is
///   `Into<Policy>`, such as `fifo(8)`. It is evaluated again for each pair. Without it, the channels have
///   the policy of the factory given to `Pairing::pair` (a rendezvous, for `Shop::pair()`).
/// - `#[bundle(local)]` on the struct: the faces stay on this node and are not serialised. It is required if
///   the messages cannot be serialised.
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
/// The body becomes the first process. The runtime starts before it and stops when it returns. The runtime
/// does not wait for processes that still run then, so await those that matter. Nodes that have not left
/// leave first, after `Ok`, an error or a panic: see `dunlin::block_on`.
///
/// If it returns an error, the program prints the error's text (`Display`) and the texts of its causes to
/// standard error, and ends with exit code 1. A value of another type ends the program as it does without the
/// attribute.
///
/// While it runs, SIGQUIT (on Unix) prints what the program waits for, and dev builds warn of suspected
/// deadlocks: see the module `waits`.
///
/// # Arguments
///
/// `workers = N`, a whole number from 1: the number of threads that run processes. Without it, the runtime
/// decides.
///
/// `remote = [f, g]` (Linux): the functions of [`#[remote]`](macro@remote) that the program runs in
/// processes.
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
    main_attr::expand(main_attr::Role::Main, arguments.into(), function.into()).into()
}

/// Makes an `async fn` a test.
///
/// It runs as the body of [`#[main]`](macro@main) does, on its own runtime. It fails if it panics or returns
/// an error. Nodes that have not left leave when it returns.
///
/// # Arguments
///
/// `workers = N`, a whole number from 1, as for [`#[main]`](macro@main). `#[ignore]`, `#[should_panic]` and
/// other attributes of tests work as usual.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// #[dunlin::test(workers = 1)]
/// async fn a_value_arrives() -> Result {
///     let (mut tx, mut rx) = channel();
///     let (sent, received) = par!(tx.send("krill"), rx.recv());
///     sent?;
///     assert_eq!(received?, "krill");
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    main_attr::expand(main_attr::Role::Test, arguments.into(), function.into()).into()
}

/// Turns an `async fn` into a process that joins its ends in a scope by itself.
///
/// The result is a function of the parameters that are not wired; it returns what `Scope::fork` takes.
/// Calling it starts nothing yet.
///
/// # Wires
///
/// - `#[sender("name")]`, `#[receiver("name")]`: an end of the channel of this name. The parameter's type
///   determines how it is joined: `Sender<T>` alone, `Sender<T, NoPoison>` without the power to poison,
///   `Shared<Sender<T>>` together with others. With `#[receiver("name", fifo(4))]` the annotation sets the
///   channel's policy: at one of its ends.
/// - `#[client("name")]`, `#[server("name")]`: a face of a bundle, or an end of a `Call`; a `Shared` one
///   together with others.
/// - The word `portable` after the name, as in `#[sender("name", portable)]`: the scope's rule may give the
///   name to a node.
/// - `#[scope]`: the scope that forked the process, for a process that forks others.
///
/// A name is an expression that evaluates to a string, and may use the arguments:
/// `#[sender(format!("out{n}"))]`.
///
/// The process joins all ends before the body runs. It leaves them when the body drops them, at the latest
/// when it ends.
///
/// # Arguments
///
/// `propagate`: the process's channels end as the process does. For a function that returns a `Result` with
/// `dunlin::Error`, or with the error of an operation:
///
/// | it ends with | the channels of its ends are |
/// |---|---|
/// | `Ok` | left, as always |
/// | an error of a channel that had ended in order | retired |
/// | an error of a channel that was poisoned | poisoned, with the same reason |
/// | another error, or a panic | poisoned, with its text |
///
/// The keyword affects the ends that the process has joined by annotation, in any form: unshared, shared,
/// or a face of a bundle with all its channels. It does not affect ends that were arguments or that the body
/// has dropped. Ends without the power to poison are left. Retiring or poisoning a channel affects all others
/// that share an end of it: if that is too much, use `next`, and return `Ok` at the end of the input. Without
/// the keyword, the process leaves its ends whatever it returns.
///
/// # What is refused
///
/// Functions that are not `async`; `self`; lifetimes, and parameters that borrow: a process outlives its
/// forker.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// #[process]
/// async fn indent(
///     #[receiver("raw")] mut raw: Receiver<String>,
///     #[sender("out")] mut out: Sender<String>,
///     by: usize,
/// ) -> Result {
///     while let Some(line) = raw.next().await? {
///         out.send(" ".repeat(by) + &line).await?;
///     }
///     Ok(()) // leaves both channels
/// }
///
/// async fn run() -> Result {
///     let scope = Scope::new();
///     scope.fork(indent(4)); // only what is not wired is an argument
///     Ok(scope.finish(Duration::from_secs(5)).await?)
/// }
/// ```
///
/// # Source
/// Wiring by name and `AutomationExtensions.RunTask` of CoCoL (Skovhede and Vinter, 2015).
#[proc_macro_attribute]
pub fn process(arguments: TokenStream, function: TokenStream) -> TokenStream {
    or_error(process::expand(arguments.into(), function.into()))
}

/// Makes an `async fn` that other nodes can start, or a `fn` that can run in another process of the operating
/// system.
///
/// Calling it runs nothing: it returns the call as a value. Arguments and output are encoded, so they need
/// serde's traits. The macro also defines a hidden type with the function's name.
///
/// - An `async fn`, at another node: a node offers it by this type (`Node::offer`), and others start it with
///   `Node::spawn_on`. Both programs must have the function at the same path. Its call can be awaited or
///   spawned, and then runs here.
/// - A `fn`, in a process of the operating system (Linux): with `dunlin::blocking::blocking_process`.
///   [`#[main]`](macro@main) lists the functions that the program runs this way.
///
/// # What is refused
///
/// `unsafe` functions, methods, generic parameters.
///
/// # Examples
///
/// ```ignore
/// use dunlin::prelude::*;
///
/// #[dunlin::remote]
/// async fn count_words(text: String) -> usize {
///     text.split_whitespace().count()
/// }
///
/// async fn serve(node: &Node) -> Result<dunlin::FunctionOffer> {
///     Ok(node.offer("big-machine").function::<count_words>().await?)
/// }
///
/// async fn far(node: &Node, text: String) -> Result<usize> {
///     let process = node.spawn_on("big-machine", count_words(text)).await?;
///     Ok(process.await?)
/// }
/// ```
///
/// ```ignore
/// use dunlin::blocking::blocking_process;
/// use dunlin::prelude::*;
///
/// #[dunlin::remote]
/// fn sum(numbers: Vec<u64>) -> u64 {
///     numbers.iter().sum()
/// }
///
/// #[dunlin::main(remote = [sum])]
/// async fn main() -> Result {
///     assert_eq!(blocking_process(sum(vec![1, 2, 3])).await??, 6);
///     Ok(())
/// }
/// ```
#[proc_macro_attribute]
pub fn remote(arguments: TokenStream, function: TokenStream) -> TokenStream {
    or_error(remote::expand(arguments.into(), function.into()))
}

fn or_error(expansion: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    expansion.unwrap_or_else(|error| error.into_compile_error()).into()
}
