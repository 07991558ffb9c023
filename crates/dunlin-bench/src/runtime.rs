//! The runtime of the programs in one process.

use anyhow::Context;
use tokio::runtime::Builder;

use crate::program::One;

/// Runs the program on a worker of the runtime that the arguments name.
pub(crate) fn on_tokio(
    one: &One,
    program: impl Future<Output = anyhow::Result<f64>> + Send + 'static,
) -> anyhow::Result<f64> {
    let runtime = if one.current_thread {
        Builder::new_current_thread().build()
    } else {
        Builder::new_multi_thread().worker_threads(one.threads).build()
    }
    .context("cannot start a tokio runtime")?;
    // Spawned, because the future given to `block_on` does not run on a worker.
    let root = runtime.spawn(program);
    let figure = runtime.block_on(root)??;
    // The end of this process frees a million processes faster than dropping them one by one.
    std::mem::forget(runtime);
    Ok(figure)
}
