//! A farm's worker, alone with its ends: how far it takes jobs ahead.

use std::time::Duration;

use dunlin::prelude::*;
use dunlin_demo::farm::protocol::{Farewell, Job, Numbered, Part, SharedEnds};
use dunlin_demo::farm::worker::{Ended, worker};
use serde::{Deserialize, Serialize};

/// Ends only when it is asked to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Endless;

impl Job for Endless {
    type Outcome = ();

    fn work(&self, is_asked: &dyn Fn() -> bool) -> Option<()> {
        while !is_asked() {
            std::thread::yield_now();
        }
        None
    }

    fn is_long(&self) -> bool {
        true
    }
}

fn job(number: u64) -> Numbered<Endless> {
    Numbered { number, job: Endless }
}

/// While a worker does the first job it takes as many more as its buffer has places, and no other. It gives
/// back all jobs that it has not done.
async fn takes_ahead(buffer: usize, is_shared: bool) -> Result {
    let ((enrol, mut enrolments), (to_workers, jobs), (reports, _to_master)) = (channel(), channel(), channel());
    let shared = is_shared.then(|| SharedEnds { jobs: jobs.share(), reports: reports.share() });
    let part = Part { enrol: enrol.share(), buffer, shared };
    let (stay, leave) = channel();
    let works = spawn(worker(part, "alone".to_owned(), leave.share(), |_| {}));
    let mut enrolment = enrolments.recv().await?;
    let mut to_worker = enrolment.desk.take().map_or(to_workers, |desk| desk.jobs);

    let room = buffer as u64 + 1;
    for number in 1..=room {
        // A worker that does not take it while it does the first one would block this for ever.
        to_worker.send(job(number)).await?;
    }
    let mut one_more = to_worker.send_nowait(job(room + 1));
    let waits = alt! { biased;
        sent = &mut one_more => sent.map(|()| false)?,
        // Both the worker and this process have had many turns by then.
        _ = future(turns()) => true,
    };
    assert!(waits, "it took {} jobs with a buffer of {buffer}", room + 1);

    drop(stay);
    let Farewell { mut back } = enrolment.farewell.recv().await?;
    back.sort_unstable();
    // The worker has not taken the jobs in a channel of its own, and the master knows them.
    let taken = if is_shared { room } else { 1 };
    assert_eq!(back, (1..=taken).collect::<Vec<_>>());
    assert_eq!(works.await??, Ended::Left);
    Ok(())
}

async fn turns() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn worker_takes_jobs_ahead_in_shared_and_multiplexed_farms() {
    dunlin::block_on(async {
        for buffer in [0, 1, 2, 5] {
            for is_shared in [true, false] {
                let limit = Duration::from_secs(20);
                let taken = tokio::time::timeout(limit, takes_ahead(buffer, is_shared)).await;
                taken.unwrap_or_else(|_| panic!("buffer {buffer}, shared {is_shared}: it hangs")).unwrap();
            }
        }
    });
}
