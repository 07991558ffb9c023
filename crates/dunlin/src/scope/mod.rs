//! Scopes: named channels, the processes that join them, and waiting for those to end.
//!
//! - [`Scope`]: names that several processes join, and the processes forked there, which it waits for;
//! - [`Wired`], [`wired`]: what can be forked; `#[process]` makes one from a function;
//! - [`Place`]: where forked processes run;
//! - [`Join`]: an end that is joined by hand; [`FromScope`]: what can be joined;
//! - [`ScopeError`], [`FinishError`], [`Straggler`], [`WaitingName`]: what can go wrong, and which processes
//!   wait.
//!
//! In the folder: `names.rs` has the table of names, `joining.rs` an end that is to be joined, `starting.rs`
//! how processes are forked, `wired.rs` what a fork does before and after its body, `forks.rs` which
//! processes have not ended, `place.rs` where they run, `hook.rs` how a name that a rule gives to a node is
//! requested from it.

mod error;
mod forks;
pub(crate) mod hook;
pub(crate) mod joining;
pub(crate) mod names;
mod place;
#[cfg(doctest)]
mod refusals;
mod starting;
pub(crate) mod wired;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_core::{Pairing, Policy, Receiver, Sender};

use crate::face::{ClientFace, ServerFace};
use crate::lock::lock;
pub use error::{FinishError, ScopeError, Straggler};
use forks::{Finishing, Forks};
#[cfg(feature = "net")]
pub use hook::Askable;
pub use joining::Join;
pub use names::{AsClient, AsReceiver, AsSender, AsServer, FromScope, Joining, WaitingName};
use names::{Ask, Joined, Names, Wanted, What};
pub use place::Place;
use place::Site;
pub use starting::Siblings;
pub use wired::{Wired, wired};

/// Names that processes join, and the processes forked among them.
///
/// A *name* stands for a channel or a bundle. Joining a face of it gives an end. Faces are joined in any
/// order: until the other face is joined, operations wait, visibly ([`waiting`](Self::waiting)). A face is
/// joined once, or by many processes that all take it [shared](Join::shared). It is left for good when the
/// joined end is dropped, at the latest when its process ends.
///
/// A [`child`](Self::child) looks up names that it does not have in the scope around it; an
/// [`isolated`](Self::isolated) scope does not. An undeclared name is made in the scope where it is first
/// joined: declare names that several scopes share in the scope around them.
///
/// *Forking* starts a process that joins its ends in the scope and then runs. [`finish`](Self::finish) waits
/// for all forked processes, and for those of the scopes within, and names those that do not end in time.
///
/// Cloning gives another handle of the same scope. Dropping the last handle detaches the processes, which run
/// on; but processes for which a `finish` has timed out are cancelled. The unjoined ends are dropped with the
/// scope, so an operation that waits for them sees the channel's end.
///
/// # Examples
/// ```
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
/// #[dunlin::main]
/// async fn main() -> Result {
///     let scope = Scope::new();
///     scope.name::<String>("raw", fifo(4));
///     scope.fork(indent(4)); // only what is not wired is an argument
///     let mut raw = scope.sender::<String>("raw").await?;
///     let mut out = scope.receiver::<String>("out").await?;
///     raw.send("krill".to_owned()).await?;
///     assert_eq!(out.recv().await?, "    krill");
///     drop(raw);
///     scope.finish(Duration::from_secs(5)).await?;
///     Ok(())
/// }
/// ```
///
/// # Source
/// Scopes, wiring by name, and processes that leave and retire what they joined: CoCoL (Skovhede and Vinter,
/// 2015). Forks that are waited for: FORKING of occam-pi (Barnes, 2003).
#[derive(Clone)]
pub struct Scope {
    inner: Arc<Inner>,
}

struct Inner {
    names: Mutex<Names>,
    #[cfg(feature = "net")]
    rules: Mutex<Vec<hook::Rule>>,
    /// The scope around, and whether its names are looked up.
    around: Option<(Scope, bool)>,
    within: Mutex<Vec<Weak<Self>>>,
    forks: Arc<Forks>,
    site: Option<Arc<Site>>,
}

impl Scope {
    /// A scope with nothing around it.
    pub fn new() -> Self {
        Self::with(None, Arc::default(), None)
    }

    fn with(around: Option<(Self, bool)>, forks: Arc<Forks>, site: Option<Arc<Site>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                names: Mutex::default(),
                #[cfg(feature = "net")]
                rules: Mutex::default(),
                around,
                within: Mutex::default(),
                forks,
                site,
            }),
        }
    }

    fn within(&self, inherits: bool, site: Option<Arc<Site>>) -> Self {
        let forks = Forks::within(&self.inner.forks);
        let scope = Self::with(Some((self.clone(), inherits)), forks, site);
        let mut within = lock(&self.inner.within);
        within.retain(|inner| inner.strong_count() > 0);
        within.push(Arc::downgrade(&scope.inner));
        scope
    }

    /// A scope within this one: names that it does not have are looked up here.
    pub fn child(&self) -> Self {
        self.within(true, self.inner.site.clone())
    }

    /// A scope within this one with its own names only, and no [rule](Self::network) from here.
    /// [`finish`](Self::finish) here still waits for the processes forked there.
    pub fn isolated(&self) -> Self {
        self.within(false, self.inner.site.clone())
    }

    /// A [`child`](Self::child) whose processes, and those of the scopes within it, run at this place.
    /// Processes that they [`spawn`](crate::spawn()) run there too, and end with the place.
    ///
    /// # Panics
    /// [`Place::current`] outside a tokio runtime; [`Place::workers`] if the operating system gives no
    /// threads.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let scope = Scope::new();
    /// let press = scope.on(Place::workers(1).named("press")); // a thread of its own
    /// let thread = press.fork(async { std::thread::current().name().map(str::to_owned) });
    /// assert_eq!(thread.await?.as_deref(), Some("press"));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// Execution scopes of CoCoL.
    #[track_caller]
    pub fn on(&self, place: Place) -> Self {
        self.within(true, place.open().map(Arc::new))
    }

    fn forks(&self) -> &Arc<Forks> {
        &self.inner.forks
    }

    fn site(&self) -> Option<Arc<Site>> {
        self.inner.site.clone()
    }

    // ---- names

    /// Declares a name as a channel of `T` with this policy, in this scope and those that inherit from it.
    ///
    /// An undeclared name is made where it is first joined, as a rendezvous unless one of the ends has a
    /// policy.
    ///
    /// # Panics
    /// If the name stands for something else here, or has a policy from another place, or was in use without
    /// one.
    #[track_caller]
    pub fn name<T: Send + 'static>(&self, name: &str, policy: impl Into<Policy>) -> &Self {
        self.declare(name, What::channel::<T>(), Some(policy.into()))
    }

    /// Declares a name as a bundle, in this scope and those that inherit from it.
    ///
    /// # Panics
    /// If the name stands for something else here.
    #[track_caller]
    pub fn name_bundle<B: Pairing + 'static>(&self, name: &str) -> &Self {
        self.declare(name, What::bundle::<B>(), None)
    }

    #[track_caller]
    fn declare(&self, name: &str, what: What, policy: Option<Policy>) -> &Self {
        let declared = lock(&self.inner.names).declare(name, what, policy, Location::caller());
        if let Err(error) = declared {
            panic!("{error}");
        }
        self
    }

    /// The sending end of the channel of this name.
    ///
    /// # Errors
    /// [`ScopeError`], when it is awaited: the name stands for something else, the end was already joined, or
    /// the scope is finished.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let scope = Scope::new();
    /// let mut a = scope.sender::<u8>("numbers").shared().await?;
    /// let mut b = scope.sender::<u8>("numbers").shared().await?;
    /// let mut numbers = scope.receiver::<u8>("numbers").policy(fifo(2)).await?;
    /// a.send(1).await?;
    /// b.send(2).await?;
    /// assert_eq!((numbers.recv().await?, numbers.recv().await?), (1, 2));
    ///
    /// let error = scope.receiver::<u8>("numbers").await.unwrap_err();
    /// assert!(matches!(error, ScopeError::Taken { .. }));
    /// let error = scope.receiver::<char>("numbers").await.unwrap_err();
    /// // Names the type, where it was declared, and what each join expected.
    /// assert!(matches!(error, ScopeError::Type { .. }));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn sender<T: Send + 'static>(&self, name: &str) -> Join<Sender<T>, AsSender> {
        Join::new(self, name, Location::caller())
    }

    /// The receiving end of the channel of this name: see [`sender`](Self::sender).
    ///
    /// # Errors
    /// As of [`sender`](Self::sender).
    #[track_caller]
    pub fn receiver<T: Send + 'static>(&self, name: &str) -> Join<Receiver<T>, AsReceiver> {
        Join::new(self, name, Location::caller())
    }

    /// The client's face of the bundle of this name. A [`Call`](crate::Call) is one too.
    ///
    /// # Errors
    /// As of [`sender`](Self::sender).
    #[track_caller]
    pub fn client<B: Pairing + 'static>(&self, name: &str) -> Join<B::Client, AsClient>
    where
        B::Client: ClientFace<Bundle = B> + Send + 'static,
        B::Server: Send + 'static,
    {
        Join::new(self, name, Location::caller())
    }

    /// The server's face of the bundle of this name.
    ///
    /// # Errors
    /// As of [`sender`](Self::sender).
    #[track_caller]
    pub fn server<B: Pairing + 'static>(&self, name: &str) -> Join<B::Server, AsServer>
    where
        B::Server: ServerFace<Bundle = B> + Send + 'static,
        B::Client: Send + 'static,
    {
        Join::new(self, name, Location::caller())
    }

    /// Puts the names for which `rule` returns true on the network: from now on this scope, and those that
    /// inherit from it, request their ends from `node`.
    ///
    /// Processes do not notice: ends that were joined in the program are then joined in the application. But
    /// what such a name carries must be [`Portable`](crate::Portable), and the join declares it: an
    /// annotation with the word `portable`, a call with [`.portable()`](Join::portable). Where no rule holds,
    /// that declaration has no effect. A shared end is requested once, and shared by all processes that join
    /// it by this rule. Whether other programs may hold it too is up to the node: see
    /// [`Naming::shared`](crate::node::Naming::shared).
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// #[process]
    /// async fn thermometer(#[sender("public.readings", portable)] mut out: Sender<f64>) -> Result {
    ///     Ok(out.send(21.5).await?)
    /// }
    /// # dunlin::block_on(async {
    /// # let names = "memory:scope-network-names";
    /// # let here = Node::builder().app("weather").names(names).listen("memory:").join().await?;
    /// # let there = Node::builder().app("weather").names(names).listen("memory:").join().await?;
    /// let scope = Scope::new();
    /// scope.network(&here, |name| name.starts_with("public."));
    /// scope.fork(thermometer());
    ///
    /// let mut readings = there.receiver::<f64>("public.readings").await?; // on another node
    /// assert_eq!(readings.recv().await?, 21.5);
    /// scope.finish(Duration::from_secs(5)).await?;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// `NetworkChannelScope` of CoCoL.
    #[cfg(feature = "net")]
    pub fn network(&self, node: &crate::node::Node, rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> &Self {
        lock(&self.inner.rules).push(hook::Rule { node: node.clone(), fits: Arc::new(rule) });
        self
    }

    #[cfg(feature = "net")]
    fn node_of(&self, name: &str) -> Option<crate::node::Node> {
        let rules = lock(&self.inner.rules).clone();
        rules.into_iter().rev().find(|rule| (rule.fits)(name)).map(|rule| rule.node)
    }

    /// This scope, and those around it whose names are looked up.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |scope| match &scope.inner.around {
            Some((around, true)) => Some(around),
            _ => None,
        })
    }

    fn join<E: FromScope<K>, K>(&self, wanted: &Wanted, ask: Option<Ask<E::End>>) -> Result<Joined<E>, ScopeError> {
        if self.inner.forks.is_finished() {
            return Err(ScopeError::Finished);
        }
        for scope in self.levels() {
            #[cfg(feature = "net")]
            if let Some(node) = scope.node_of(&wanted.name) {
                let mut names = lock(&scope.inner.names);
                names.check(wanted, &E::what())?;
                let ask = ask.ok_or_else(|| ScopeError::NotPortable {
                    name: wanted.name.clone(),
                    carries: E::what().text(),
                    wanted_at: wanted.at,
                })?;
                return Ok(Joined::There(names.ask(node, wanted, ask)));
            }
            let mut names = lock(&scope.inner.names);
            if names.has(&wanted.name) {
                return names.join(wanted).map(Joined::Here);
            }
        }
        #[cfg(not(feature = "net"))]
        let _: Option<Ask<E::End>> = ask;
        lock(&self.inner.names).join(wanted).map(Joined::Here)
    }

    /// The names of this scope of which one end has been joined here, and the other not: every wait is
    /// visible. Names of the scopes around and within it, and names on the network, are not included.
    pub fn waiting(&self) -> Vec<WaitingName> {
        lock(&self.inner.names).waiting()
    }

    /// Ends all processes that were forked here, or in a scope within, at their next await: see
    /// [`Process::cancel`](crate::Process::cancel).
    pub fn cancel(&self) {
        self.inner.forks.cancel();
    }

    /// Closes this scope, and those within, to forks and joins; then waits, for at most `patience`, for all
    /// forked processes.
    ///
    /// Unjoined ends are dropped: a process that waits for the other end of a name sees the channel's end.
    ///
    /// # Errors
    /// [`Error::Finish`](crate::Error::Finish). [`FinishError::Stragglers`] names the processes that have not
    /// ended, and what each waits on. They run on: finish again to wait longer, or end them by
    /// [`cancel`](Self::cancel) or by dropping the last handle of the scope. If all have ended,
    /// [`FinishError::Panicked`] or [`FinishError::NotStarted`] reports the first failure. What processes
    /// return goes to the code that awaits them.
    ///
    /// # Cancel safety
    /// It can be called again. Once it has been polled the scope is finished.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let scope = Scope::new();
    /// let (_tx, mut rx) = channel::<u8>();
    /// scope.fork_named("listener", async move { rx.recv().await });
    /// let Err(Error::Finish(error)) = scope.finish(Duration::from_millis(1)).await else { unreachable!() };
    /// let straggler = &error.stragglers()[0];
    /// assert_eq!(straggler.name.as_deref(), Some("listener"));
    /// // On which channel, made where, since when.
    /// assert!(straggler.waits[0].to_string().contains("for receive"));
    /// # });
    /// ```
    #[track_caller]
    pub fn finish(&self, patience: Duration) -> impl Future<Output = crate::Result> + Send + use<> {
        let (inner, at) = (self.inner.clone(), Location::caller());
        async move {
            inner.forks.finish();
            inner.close();
            Ok(Finishing::new(inner.forks.clone(), patience, at).await?)
        }
    }
}

impl Inner {
    /// Closes this scope, and those within, to joins.
    fn close(&self) {
        let unjoined = lock(&self.names).close();
        drop(unjoined);
        let within: Vec<_> = lock(&self.within).iter().filter_map(Weak::upgrade).collect();
        within.iter().for_each(|inner| inner.close());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.forks.forgotten();
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("site", &self.inner.site).finish_non_exhaustive()
    }
}
