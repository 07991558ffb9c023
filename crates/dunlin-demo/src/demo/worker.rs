//! A worker: counts the words of texts, for the holder of its handle.

use dunlin::prelude::*;

use super::event::{Event, Reporter};
use super::protocol::{Desk, DeskClient, DeskServer, EntranceClient, Handle, Piece, Registration, Registry};
use super::words::Counter;

/// Why a customer was not served to the end.
type NotServed = Error;

/// Registers, serves one customer after the other, and returns when there is no broker any more.
///
/// # Errors
/// The broker did not answer the worker's hello; `patience` is how long it may take.
pub async fn worker(mut entrance: EntranceClient, patience: Duration, mut said: Reporter) -> Result {
    let name = said.part().to_owned();
    entrance.hello.call(name.clone()).within(patience).await?;
    let mut registry = entrance.registry.call(()).within(patience).await?;
    let mut lost: Option<Error> = None;
    loop {
        let (client, mut desk) = Desk::pair();
        let (home, mut back) = channel();
        let mut handle = Handle { desk: client, home: home.share() };
        let why = loop {
            if let Err(error) = register(&mut registry, &name, handle).await {
                said.say(Event::Leaves { why: error.to_string() }).await;
                return Ok(());
            }
            if let Some(why) = lost.take() {
                said.say(Event::HandleLost { why: why.to_string() }).await;
            }
            if let Err(error) = serve(&mut desk, &mut said).await {
                break error;
            }
            handle = match back.recv().await {
                Ok(handle) => handle,
                Err(error) => break error.into(),
            };
            if let Err(error) = comes_home(&mut handle.desk, &mut desk).await {
                break error;
            }
        };
        // The broker has closed and dropped the handle, or the handle's holder is lost. The next registration
        // fails if there is no broker any more.
        lost = Some(why);
    }
}

/// An end stays at the node that used it last, and until it is used the previous node answers for it. So a
/// worker uses a returned handle, and the customer may leave.
async fn comes_home(client: &mut DeskClient, desk: &mut DeskServer) -> Result {
    let (sent, received) = par!(client.text.send(Piece::Home), desk.text.recv());
    sent?;
    received?;
    Ok(())
}

async fn register(registry: &mut Registry, name: &str, handle: Handle) -> Result {
    let mut claim = registry.claim().await?;
    claim.send(Registration::Name(name.to_owned())).await?;
    claim.send(Registration::Handle(handle)).await?;
    Ok(())
}

/// Serves the next customer at the desk.
async fn serve(desk: &mut DeskServer, said: &mut Reporter) -> Result<(), NotServed> {
    let Piece::Begin { customer, file } = desk.text.recv().await? else {
        return Err(Error::other("a text has to begin with its name"));
    };
    said.say(Event::Counts { customer: customer.clone(), file: file.clone() }).await;
    let mut counter = Counter::default();
    let (mut pieces, mut bytes) = (0, 0);
    while let Piece::Characters(piece) = desk.text.recv().await? {
        counter.read(&piece);
        pieces += 1;
        bytes += piece.len() as u64;
    }
    desk.table.send(counter.finish()).await?;
    said.say(Event::Counted { customer, file, pieces, bytes }).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two messages of each worker arrive together, since the worker claims the shared end for them.
    #[test]
    fn concurrent_registrations_do_not_interleave() {
        dunlin::block_on(async {
            let (registry, mut registrations) = channel();
            let registry: Registry = registry.share();
            let registers = |name: &'static str| {
                let mut registry = registry.clone();
                async move {
                    let (home, _) = channel();
                    register(&mut registry, name, Handle { desk: Desk::pair().0, home: home.share() }).await
                }
            };
            let hears = async {
                let mut heard = Vec::new();
                for _ in 0..4 {
                    heard.push(matches!(registrations.recv().await?, Registration::Name(_)));
                }
                Ok::<_, Error>(heard)
            };
            let (one, other, heard) = par!(registers("worker 1"), registers("worker 2"), hears);
            one.and(other)?;
            assert_eq!(heard?, [true, false, true, false]);
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}
