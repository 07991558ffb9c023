//! The same parts in one program, with only local channels between them.

use dunlin::prelude::*;

use super::broker::broker;
use super::customer::customer;
use super::event::{Event, Reporter, Said};
use super::plan::{Plan, Role};
use super::protocol::{Entrance, EntranceClient, EntranceServer};
use super::worker::worker;

/// Runs all parts of the plan, in the plan's order, until all customers have left.
pub async fn run(plan: &Plan, said: Shared<Sender<Said>>) {
    let (mut door, visitors) = channel::<EntranceServer>();
    let (open, opened) = channel::<()>();
    let mut visitors = Some((visitors, opened));
    let (mut customers, mut others) = (Vec::new(), Vec::new());
    // No part can enter before the broker exists, so parts that start earlier wait here.
    let mut early = Vec::new();
    for part in plan.parts.iter().cloned() {
        let reporter = Reporter::new(&part.name, &said);
        let part_patience = plan.patience;
        match part.role {
            Role::Names => {}
            Role::Broker => {
                let (visitors, opened) = visitors.take().expect("a plan has one broker");
                let broker = broker(visitors, opened, reporter);
                others.push(spawn(async move {
                    broker.await;
                    Ok(())
                }));
            }
            Role::Worker => {
                let (client, server) = Entrance::pair();
                early.push(server);
                others.push(spawn(tells(worker(client, part_patience, reporter.clone()), reporter)));
            }
            Role::Customer { texts } => {
                let (client, server): (EntranceClient, _) = Entrance::pair();
                early.push(server);
                let customer = customer(client, texts, plan.pace, part_patience, reporter.clone());
                customers.push(spawn(tells(customer, reporter)));
            }
        }
    }
    for visitor in early {
        let _ = door.send(visitor).await;
    }
    for customer in customers {
        let _ = customer.await;
    }
    drop(open);
    for other in others {
        let _ = other.await;
    }
}

/// Runs a part, and reports its failure.
async fn tells(part: impl Future<Output = Result>, mut said: Reporter) -> Result {
    let ended = part.await;
    if let Err(error) = &ended {
        said.say(Event::Failed { why: error.to_string() }).await;
    }
    ended
}
