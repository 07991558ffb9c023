//! Clients whose server is lost between its discovery and its answer.

use dunlin::node::Guest;
use dunlin::prelude::*;
use dunlin::sim::Sim;

const SEEDS: u64 = 20;

/// Both kinds of halves at each node.
#[derive(Bundle)]
struct Mail {
    letters: ToServer<u32>,
    #[policy(fifo(4))]
    parcels: ToServer<u32>,
    answers: ToClient<u32>,
    #[policy(fifo(4))]
    notices: ToClient<u32>,
}

/// The server holds no sending half: nothing at the client is a home.
#[derive(Bundle)]
struct Drop {
    letters: ToServer<u32>,
}

/// The first serves the names, and relays nothing.
async fn nodes<const N: usize>() -> Result<[Node; N]> {
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(Node::builder().app("restarts").relay(false).join().await?);
        if let [first] = &nodes[..] {
            let _ = first.sender::<u32>("the first serves the names").await?;
        }
    }
    Ok(nodes.try_into().unwrap_or_else(|_| unreachable!("there are N")))
}

async fn uses(client: &mut MailClient, server: &mut MailServer) -> Result {
    let (sent, letter) = par!(client.letters.send(1), server.letters.recv());
    sent?;
    client.parcels.send(2).await?;
    let (answered, answer) = par!(server.answers.send(3), client.answers.recv());
    answered?;
    server.notices.send(4).await?;
    let all = (letter?, server.parcels.recv().await?, answer?, client.notices.recv().await?);
    assert_eq!(all, (1, 2, 3, 4));
    Ok(())
}

fn simulate(test: impl AsyncFn(&Sim) -> Result) {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        sim.run(test(&sim)).unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

#[test]
fn unanswered_client_joins_the_server_that_took_over() {
    simulate(async |sim| {
        let [names, stopped, asks, restarted] = nodes().await?;
        let _lost = stopped.server::<Mail>("mail").await?;
        sim.part(&asks, &stopped);
        let mut client = asks.client::<Mail>("mail").await?;
        sleep(Duration::from_millis(10)).await;
        sim.part(&names, &stopped);
        sim.part(&restarted, &stopped);
        // The first server's declaration stands until the name service has given it up.
        sleep(Duration::from_secs(60)).await;
        let mut server = restarted.server::<Mail>("mail").await?;
        uses(&mut client, &mut server).await
    });
}

#[test]
fn unanswered_client_joins_the_same_server_when_it_can_be_reached() {
    simulate(async |sim| {
        let [_names, serves, asks] = nodes().await?;
        let mut server = serves.server::<Mail>("mail").await?;
        sim.part(&asks, &serves);
        let mut client = asks.client::<Mail>("mail").await?;
        sleep(Duration::from_secs(60)).await;
        sim.heal(&asks, &serves);
        uses(&mut client, &mut server).await
    });
}

#[test]
fn unanswered_client_joins_an_acceptor_when_it_can_be_reached() {
    simulate(async |sim| {
        let [_names, serves, asks] = nodes().await?;
        let mut guests = serves.acceptor::<Mail>("mail").await?;
        sim.part(&asks, &serves);
        let mut client = asks.client::<Mail>("mail").await?;
        sleep(Duration::from_secs(60)).await;
        sim.heal(&asks, &serves);
        let mut server: MailServer = guests.recv().await.map(Guest::into_face)?;
        uses(&mut client, &mut server).await
    });
}

#[test]
fn unanswered_client_of_senders_only_joins_when_the_server_can_be_reached() {
    simulate(async |sim| {
        let [_names, serves, asks] = nodes().await?;
        let mut server = serves.server::<Drop>("drop").await?;
        sim.part(&asks, &serves);
        let mut client = asks.client::<Drop>("drop").await?;
        let (sent, received) = par!(client.letters.send(7), async {
            sleep(Duration::from_secs(60)).await;
            sim.heal(&asks, &serves);
            server.letters.recv().await
        });
        sent?;
        assert_eq!(received?, 7);
        Ok(())
    });
}

/// Whenever the server is lost, the client joins the next one, or gets an error for its lost server, and its
/// name is free for a new client.
#[test]
fn name_is_never_stuck_after_its_server_is_lost() {
    let mut ends = [0, 0];
    for seed in 0..200 {
        let sim = Sim::new(seed);
        let joined = sim.run(async {
            let [names, stopped, asks, restarted] = nodes().await?;
            let lost = stopped.server::<Mail>("mail").await?;
            let (client, ()) = par!(async { asks.client::<Mail>("mail").await }, async {
                sleep(Duration::from_micros(sim.below(20_000))).await;
                for node in [&asks, &names, &restarted] {
                    sim.part(node, &stopped);
                }
            });
            let mut client = client?;
            sleep(Duration::from_secs(60)).await;
            let mut server = restarted.server::<Mail>("mail").await?;
            let answer = match client.answers.try_recv() {
                Err(RecvError::WouldBlock) => {
                    uses(&mut client, &mut server).await?;
                    true
                }
                Err(RecvError::NodeLost) => {
                    drop(client);
                    let mut client = asks.client::<Mail>("mail").await?;
                    uses(&mut client, &mut server).await?;
                    false
                }
                other => panic!("{other:?}"),
            };
            drop(lost);
            Ok::<_, Error>(answer)
        });
        let joined = joined.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
        ends[usize::from(joined)] += 1;
    }
    assert!(ends.iter().all(|count| *count > 5), "{ends:?}");
}

/// The drop of a waiting end withdraws its declaration.
#[test]
fn dropped_client_frees_its_name_before_a_server_comes() {
    simulate(async |_| {
        let [_names, asks, serves] = nodes().await?;
        drop(asks.client::<Mail>("mail").await?);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(asks.waiting(), []);
        let mut client = asks.client::<Mail>("mail").await?;
        let mut server = serves.server::<Mail>("mail").await?;
        uses(&mut client, &mut server).await
    });
}
