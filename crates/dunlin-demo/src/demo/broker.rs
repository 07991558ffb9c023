//! The broker: matches customers with workers, and takes no part in what they send each other.

use std::collections::VecDeque;

use dunlin::prelude::*;
use dunlin::{Reply, unbounded};

use super::event::{Event, Reporter};
use super::protocol::{Appointment, EntranceServer, Handle, Registration, Registry, Wish};

/// What the porter of a visitor reports to the broker.
enum Word {
    Wishes(Wish, Reply<Appointment>),
    Gone(String),
}

/// Serves all visitors until the other end of `open` has no holder. Then it drops all its handles, which ends
/// their workers.
pub async fn broker(mut visitors: Receiver<EntranceServer>, mut open: Receiver<()>, mut said: Reporter) {
    let (registry, mut registrations) = channel();
    let registry: Registry = registry.share();
    let (words, mut heard) = channel_with(unbounded());
    let words = words.share();
    let mut porters = Vec::new();

    let mut registering = None;
    let mut idle = VecDeque::new();
    let mut waiting: VecDeque<(String, Reply<Appointment>)> = VecDeque::new();
    let mut appointments = 0;
    loop {
        alt! { biased;
            _ = open.recv() => break,
            visitor = visitors.next() => match visitor {
                Ok(Some(visitor)) => porters.push(spawn(porter(visitor, registry.clone(), words.clone()))),
                _ => break,
            },
            word = heard.recv() => match word {
                Ok(Word::Wishes(wish, reply)) => {
                    if let Some(visitor) = wish.lost {
                        idle.retain(|(worker, _)| *worker != visitor);
                        said.say(Event::Gone { visitor, says: wish.customer.clone() }).await;
                    }
                    waiting.push_back((wish.customer, reply));
                }
                Ok(Word::Gone(visitor)) => {
                    idle.retain(|(worker, _)| *worker != visitor);
                    waiting.retain(|(customer, _)| *customer != visitor);
                    let says = said.part().to_owned();
                    said.say(Event::Gone { visitor, says }).await;
                }
                Err(_) => break,
            },
            // The two messages of a worker arrive together, unless the worker is lost in between.
            registration = registrations.recv() => match registration {
                Ok(Registration::Name(worker)) => registering = Some(worker),
                Ok(Registration::Handle(handle)) => {
                    if let Some(worker) = registering.take() {
                        said.say(Event::Registered { worker: worker.clone() }).await;
                        idle.push_back((worker, handle));
                    }
                }
                Err(_) => break,
            },
        }
        while let Some((worker, customer)) = appoint(&mut idle, &mut waiting) {
            appointments += 1;
            said.say(Event::Appointed { worker, customer }).await;
        }
        porters.retain(|porter| !porter.is_finished());
    }
    for porter in &porters {
        porter.cancel();
    }
    for porter in porters {
        let _ = porter.await;
    }
    drop((idle, waiting, registrations));
    said.say(Event::Closed { appointments }).await;
}

/// Gives the first customer the first worker, if there are both.
fn appoint(
    idle: &mut VecDeque<(String, Handle)>,
    waiting: &mut VecDeque<(String, Reply<Appointment>)>,
) -> Option<(String, String)> {
    while !idle.is_empty() {
        let (customer, reply) = waiting.pop_front()?;
        let (worker, handle) = idle.pop_front()?;
        match reply.send(Appointment { worker: worker.clone(), handle }) {
            Ok(()) => return Some((worker, customer)),
            // The customer has left.
            Err(Appointment { worker, handle }) => idle.push_front((worker, handle)),
        }
    }
    None
}

/// Serves one visitor, and reports its end.
async fn porter(mut visitor: EntranceServer, registry: Registry, mut words: Shared<Sender<Word>>) {
    let mut name = None;
    loop {
        let heard = alt! {
            ask = visitor.hello.accept() => ask.map(|ask| {
                let (who, reply) = ask.split();
                name = Some(who);
                let _ = reply.send(());
            }),
            ask = visitor.registry.accept() => ask.map(|ask| {
                let _ = ask.reply(registry.clone());
            }),
            ask = visitor.worker.accept() => match ask {
                Ok(ask) => {
                    let (wish, reply) = ask.split();
                    let _ = words.send(Word::Wishes(wish, reply)).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if heard.is_err() {
            break;
        }
    }
    if let Some(name) = name {
        let _ = words.send(Word::Gone(name)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Said;
    use super::super::protocol::{Desk, Entrance, EntranceClient};
    use super::*;

    /// A running broker, and its events.
    struct Office {
        door: Sender<EntranceServer>,
        said: Receiver<Said>,
        _open: Sender<()>,
    }

    impl Office {
        fn open() -> Self {
            let ((door, visitors), (_open, opened)) = (channel(), channel());
            let (say, said) = channel_with(unbounded());
            drop(spawn(broker(visitors, opened, Reporter::new("broker", &say.share()))));
            Self { door, said, _open }
        }

        async fn hears(&mut self, what: &Event) -> Result {
            while self.said.recv().within(Duration::from_secs(60)).await?.event != *what {}
            Ok(())
        }

        async fn visitor(&mut self, name: &str) -> Result<EntranceClient> {
            let (mut visitor, server) = Entrance::pair();
            self.door.send(server).await?;
            visitor.hello.call(name.to_owned()).await?;
            Ok(visitor)
        }

        /// Registers an idle worker.
        async fn worker(&mut self, name: &str) -> Result<EntranceClient> {
            let mut worker = self.visitor(name).await?;
            let mut registry = worker.registry.call(()).await?;
            let mut claim = registry.claim().await?;
            claim.send(Registration::Name(name.to_owned())).await?;
            let (home, _) = channel();
            claim.send(Registration::Handle(Handle { desk: Desk::pair().0, home: home.share() })).await?;
            self.hears(&Event::Registered { worker: name.to_owned() }).await?;
            Ok(worker)
        }

        /// The worker that the broker appoints for a new customer.
        async fn appoints(&mut self, lost: Option<&str>) -> Result<String> {
            let mut customer = self.visitor("customer").await?;
            let call = customer.worker.call(wish("customer", lost));
            Ok(call.within(Duration::from_secs(60)).await?.worker)
        }
    }

    fn wish(customer: &str, lost: Option<&str>) -> Wish {
        Wish { customer: customer.to_owned(), lost: lost.map(str::to_owned) }
    }

    #[test]
    fn workers_are_appointed_in_order_of_registration() {
        dunlin::block_on(async {
            let mut office = Office::open();
            let _workers = (office.worker("worker 1").await?, office.worker("worker 2").await?);
            assert_eq!(office.appoints(None).await?, "worker 1");
            assert_eq!(office.appoints(None).await?, "worker 2");
            Ok::<_, Error>(())
        })
        .unwrap();
    }

    #[test]
    fn a_worker_that_is_gone_is_not_appointed() {
        dunlin::block_on(async {
            let mut office = Office::open();
            drop(office.worker("worker 1").await?);
            office.hears(&Event::Gone { visitor: "worker 1".to_owned(), says: "broker".to_owned() }).await?;
            let _worker = office.worker("worker 2").await?;
            assert_eq!(office.appoints(None).await?, "worker 2");
            Ok::<_, Error>(())
        })
        .unwrap();
    }

    #[test]
    fn a_worker_that_a_customer_has_lost_is_not_appointed() {
        dunlin::block_on(async {
            let mut office = Office::open();
            let _workers = (office.worker("worker 1").await?, office.worker("worker 2").await?);
            assert_eq!(office.appoints(Some("worker 1")).await?, "worker 2");
            Ok::<_, Error>(())
        })
        .unwrap();
    }

    #[test]
    fn worker_of_a_departed_customer_goes_to_the_next_one() {
        dunlin::block_on(async {
            let mut office = Office::open();
            let mut impatient = office.visitor("impatient").await?;
            // (The broker reports a request only if a part was lost.)
            let heard = Event::Gone { visitor: "somebody".to_owned(), says: "impatient".to_owned() };
            alt! {
                _ = future(impatient.worker.call(wish("impatient", Some("somebody")))) => panic!("there is no worker"),
                heard = future(office.hears(&heard)) => heard?,
            }
            let _worker = office.worker("worker 1").await?;
            assert_eq!(office.appoints(None).await?, "worker 1");
            Ok::<_, Error>(())
        })
        .unwrap();
    }
}
