//! The errors that tests of scopes expect.

use dunlin::ExitReason;
use dunlin::prelude::*;

/// How long a test waits for a scope that does not end.
const NOW: Duration = Duration::from_millis(1);

/// The error of a name that is refused.
pub(crate) fn refused<E: std::fmt::Debug>(joined: Result<E, ScopeError>) -> ScopeError {
    joined.expect_err("refused")
}

/// The error of a process that could not join its names.
pub(crate) fn not_started(exit: Exit) -> ScopeError {
    match exit.reason {
        ExitReason::NotStarted(why) => *why,
        _ => panic!("{exit}"),
    }
}

/// The error of a scope that still has processes.
pub(crate) async fn unfinished(scope: &Scope) -> FinishError {
    match scope.finish(NOW).await {
        Err(Error::Finish(error)) => error,
        other => panic!("{other:?}"),
    }
}
