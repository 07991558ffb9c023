//! Children on other nodes.

use super::lent::Lent;
use super::spec::Child;
use super::supervised::Supervised;
use crate::node::Node;
use crate::{ExitReason, Outcome, RemoteCall, RemoteFunction};

impl Child {
    /// A child at the node that [offers](Node::offer) the function under this name. `call` makes the
    /// arguments of each of its processes: nothing is lent over nodes.
    ///
    /// A process here starts it, [linked](crate::SpawnOn::linked) in both directions, and ends as it does. So
    /// the child ends when this process is cancelled, and when *its* node gives this one up. At a split, or
    /// while a node is stopped, it may run beside its successor: what must not run twice claims a shared end.
    /// It has [started](Child::start_within) when its process has; until a node has the offer, it waits. It
    /// does not see a request to shut down, and is cancelled. The supervisor keeps a handle of `node`.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::supervisor::Child;
    ///
    /// #[dunlin::remote]
    /// async fn greet(mut to: Sender<String>) {
    ///     let _ = to.send("hello".to_owned()).await;
    /// }
    /// # dunlin::block_on(async {
    /// # let names = "memory:child-example";
    /// let here = Node::builder().app("greeters").names(names).listen("memory:").join().await?;
    /// let there = Node::builder().app("greeters").names(names).listen("memory:").join().await?;
    /// let _offer = there.offer("greeter").function::<greet>().await?;
    ///
    /// let (tx, mut rx) = channel();
    /// let to = std::sync::Mutex::new(Some(tx)); // it is started once
    /// let greeter = Child::remote("greeter", &here, "greeter", move || {
    ///     greet(to.lock().unwrap().take().expect("it does not fail"))
    /// });
    /// let tree = Supervisor::one_for_one().with(greeter).spawn();
    /// assert_eq!(rx.recv().await?, "hello");
    /// tree.await??;
    /// # there.leave().await?;
    /// # here.leave().await
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// Supervisors of Erlang, whose children may be on any node.
    pub fn remote<F, C>(name: &str, node: &Node, offer: &str, call: C) -> Self
    where
        F: RemoteFunction,
        C: Fn() -> RemoteCall<F> + Send + 'static,
    {
        let ends = (node.clone(), offer.to_owned(), call);
        let child = Self::of(name, ends, |ends: Lent<(Node, String, C)>, supervised| async move {
            let (node, offer, call) = (ends.0.clone(), ends.1.clone(), (ends.2)());
            run(&node, &offer, call, supervised).await
        });
        Self { is_asked: false, ..child }
    }
}

/// Starts the process elsewhere, and waits for its end.
async fn run<F: RemoteFunction>(node: &Node, offer: &str, call: RemoteCall<F>, mut own: Supervised) -> ExitReason {
    let process = match node.spawn_on(offer, call).linked().await {
        Ok(process) => process,
        Err(error) => return error.to_string().into(),
    };
    own.ready();
    match process.await {
        Ok(output) => output.exit_reason(),
        Err(exit) => exit.reason,
    }
}
