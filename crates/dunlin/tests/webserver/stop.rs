//! The end of a server.

use std::fs;

use dunlin::prelude::*;

use super::client::Client;
use super::farm::{FEW, names};
use super::web::limits::Limits;
use super::{Scratch, patient, serve, serve_as};

/// Whether the server's side of a connection is open in both directions.
fn is_established(server: &str, client: &str) -> bool {
    let port = |address: &str| -> u16 { address.rsplit_once(':').unwrap().1.parse().unwrap() };
    let ends = [format!(":{:04X}", port(server)), format!(":{:04X}", port(client))];
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1]) && fields[3] == "01"
    })
}

/// The client has sent more than the server has read, so dropping the connection would reset it, and discard
/// the part of the response that the client has not received.
#[test]
fn stop_discards_no_part_of_a_response_if_the_client_has_sent_more() {
    const LENGTH: usize = 20_000_000;
    let scratch = Scratch::new();
    scratch.file("x", vec![7; LENGTH]);
    // Without a farm, the server may read the rest before it notices the stop: then it refuses that.
    for farm in [Some(FEW), None, None, None, None, None, None] {
        dunlin::block_on(async {
            let limits = Limits { close: patient().idle, ..patient() };
            let server = serve_as(&scratch, limits, farm).await;
            let (to, site) = (server.address.to_string(), server.site.clone());
            let mut client = Client::connect(&to).await;
            let from = client.connection.address().unwrap().to_string();
            client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
            let mut read = client.connection.read(1).await.unwrap().to_vec();
            client.send("krill\r\n\r\n").await;
            let ((), ()) = par!(async { server.stop().await.unwrap() }, async move {
                while dunlin::io::tcp::connect(&to).await.is_ok() {}
                while names(&site).iter().any(|(name, _)| name.starts_with("reader ")) {
                    tokio::task::yield_now().await;
                }
                // Only until the server has written all of it: some of that is in the system's buffers.
                while site.stats.bytes.get() < LENGTH as u64 {
                    let piece = client.connection.read(64 << 10).await.unwrap();
                    read.extend_from_slice(&piece);
                    if piece.is_empty() {
                        break;
                    }
                }
                drop(site);
                while is_established(&to, &from) {
                    tokio::task::yield_now().await;
                }
                client.unread(&read);
                let response = client.response(false).await.unwrap();
                assert!(response.is_whole && response.body == [7; LENGTH], "{} bytes", response.body.len());
                assert!(client.response(false).await.is_none_or(|response| response.status == 400));
            });
        });
    }
}

#[test]
fn stop_reports_connections_that_are_busy_at_its_deadline() {
    let scratch = Scratch::new();
    scratch.file("x", vec![7; 20_000_000]);
    dunlin::block_on(async {
        let server = serve(&scratch, Limits { shutdown: Duration::from_millis(50), ..patient() }).await;
        let mut stuck = Client::connect(&server.address.to_string()).await;
        stuck.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
        stuck.connection.read(1).await.unwrap();
        let error = server.stop().await.unwrap_err();
        assert_eq!(error.to_string(), "1 connections were busy at the deadline");
    });
}
