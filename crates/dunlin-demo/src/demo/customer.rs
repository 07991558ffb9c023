//! A customer: has the words of its texts counted, and gives each worker's handle back.

use dunlin::prelude::*;

use super::event::{Event, Outcome, Reporter};
use super::protocol::{Appointment, DeskClient, EntranceClient, Piece, Wish};
use super::texts::Text;
use super::words::{WordTable, pieces};

/// Has its texts counted, one after the other. `pace` is the pause before each piece, for a visible pace.
///
/// # Errors
/// The broker did not answer the customer's hello; `patience` is how long it may take.
pub async fn customer(
    mut entrance: EntranceClient,
    texts: Vec<Text>,
    pace: Duration,
    patience: Duration,
    mut said: Reporter,
) -> Result {
    entrance.hello.call(said.part().to_owned()).within(patience).await?;
    for text in texts {
        let file = text.to_string();
        match text.read().await {
            Ok(content) => is_served(&mut entrance, &file, &content, pace, &mut said).await,
            Err(why) => said.say(Event::Unreadable { file, why }).await,
        }
    }
    Ok(())
}

/// Asks for workers until one has counted the text, or the broker is gone.
async fn is_served(entrance: &mut EntranceClient, file: &str, text: &str, pace: Duration, said: &mut Reporter) {
    let (file, count) = (file.to_owned(), pieces(text).count() as u64);
    let bytes = text.len() as u64;
    let mut lost = None;
    loop {
        said.say(Event::Waits { file: file.clone() }).await;
        let wish = Wish { customer: said.part().to_owned(), lost: lost.take() };
        let Appointment { worker, mut handle } = match entrance.worker.call(wish).await {
            Ok(appointment) => appointment,
            Err(error) => {
                let why = format!("the broker is lost: {error}");
                return said.say(Event::NotServed { file, why }).await;
            }
        };
        said.say(Event::Begins { file: file.clone(), worker: worker.clone(), bytes, pieces: count }).await;
        match hand_in(&mut handle.desk, &file, text, pace, said).await {
            Ok(table) => {
                let exact = table == WordTable::of(text);
                let served = Event::Served { file, worker: worker.clone(), bytes, pieces: count, exact, table };
                said.say(served).await;
                let mut home = handle.home.clone();
                let returned = home.send(handle).await;
                return said
                    .say(match returned {
                        Ok(()) => Event::Returned { worker },
                        Err(error) => Event::NotReturned { worker, why: error.to_string() },
                    })
                    .await;
            }
            Err(outcome) => {
                said.say(Event::Lost { file: file.clone(), worker: worker.clone(), outcome }).await;
                lost = Some(worker);
            }
        }
    }
}

/// Sends the text, and waits for its table.
async fn hand_in(
    desk: &mut DeskClient,
    file: &str,
    text: &str,
    pace: Duration,
    said: &mut Reporter,
) -> Result<WordTable, Outcome> {
    let begin = Piece::Begin { customer: said.part().to_owned(), file: file.to_owned() };
    desk.text.send(begin).await.map_err(|error| Outcome::of_piece(0, &error))?;
    let mut sent = 0;
    for piece in pieces(text) {
        if !pace.is_zero() {
            sleep(pace).await;
        }
        let sending = desk.text.send(Piece::Characters(piece.to_owned()));
        sending.await.map_err(|error| Outcome::of_piece(sent, &error))?;
        sent += 1;
        said.say(Event::Progress { file: file.to_owned(), sent }).await;
    }
    desk.text.send(Piece::End).await.map_err(|error| Outcome::of_piece(sent, &error))?;
    desk.table.recv().await.map_err(|error| Outcome::NoTable { why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::event::Said;
    use super::super::protocol::{Desk, Entrance, EntranceServer, Handle};
    use super::*;

    /// A broker, and a worker that answers every text with this table.
    async fn answers(mut visitor: EntranceServer, table: WordTable) -> Result {
        let _ = visitor.hello.accept().await?.reply(());
        let (desk, mut worker) = Desk::pair();
        let (home, mut back) = channel();
        let handle = Handle { desk, home: home.share() };
        let _ = visitor.worker.accept().await?.reply(Appointment { worker: "worker 1".to_owned(), handle });
        while !matches!(worker.text.recv().await?, Piece::End) {}
        worker.table.send(table).await?;
        back.recv().await?;
        Ok(())
    }

    /// Whether a customer reports such a worker's table as exact.
    fn says_exact(table: WordTable) -> bool {
        dunlin::block_on(async {
            let (entrance, visitor) = Entrance::pair();
            let (say, mut said) = channel();
            let texts = vec![Text::Shipped("ozymandias.txt".to_owned())];
            let reporter = Reporter::new("customer 1", &say.share());
            let customer = customer(entrance, texts, Duration::ZERO, Duration::from_secs(60), reporter);
            let hears = async {
                let mut served = None;
                while let Some(Said { event, .. }) = said.next().await? {
                    if let Event::Served { exact, .. } = event {
                        served = Some(exact);
                    }
                }
                Ok::<_, Error>(served)
            };
            let (customer, answered, served) = par!(customer, answers(visitor, table), hears);
            customer.and(answered)?;
            Ok::<_, Error>(served?.expect("it is served"))
        })
        .unwrap()
    }

    #[test]
    fn a_table_is_exact_if_the_customer_counts_the_same() {
        let text = include_str!("../../texts/ozymandias.txt");
        assert!(says_exact(WordTable::of(text)));
        // One word too many, one too few, another one, none.
        assert!(!says_exact(WordTable::of(&format!("{text} sand"))));
        assert!(!says_exact(WordTable::of(text.rsplit_once(' ').unwrap().0)));
        assert!(!says_exact(WordTable::of(&text.replace("King", "Queen"))));
        assert!(!says_exact(WordTable::default()));
    }
}
