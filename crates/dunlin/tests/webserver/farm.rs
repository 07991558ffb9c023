//! Both layouts: a process for each connection, and fixed numbers of readers and workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use dunlin::prelude::*;
use dunlin::waits::{self, Doing, Pid};
use rustix::net::{RecvFlags, recv};

use super::web::farm::{NUMBERS, Numbers};
use super::web::limits::Limits;
use super::web::site::Site;
use super::{Scratch, patient, serve_as};
use crate::client::Client;

pub(crate) const FEW: Numbers = Numbers { readers: 4, files: 4, programs: 2 };

/// The names of the processes of a server, with their identities.
pub(crate) fn names(site: &Site) -> BTreeSet<(String, Pid)> {
    let processes = site.processes.lock().unwrap();
    processes.iter().filter(|p| !p.is_finished()).map(|p| (p.name().unwrap().to_owned(), p.pid().into())).collect()
}

/// Ends the process that waits for a descriptor and whose name begins with `name`, and returns its name.
async fn kill(site: &Site, name: &str) -> String {
    loop {
        let waits = waits::snapshot();
        let is_sending = |pid: dunlin::Pid| waits.iter().any(|wait| pid == wait.who && wait.doing == Doing::Ready);
        let victim = {
            let processes = site.processes.lock().unwrap();
            let victim = processes.iter().find(|p| p.name().unwrap().starts_with(name) && is_sending(p.pid()));
            victim.map(|victim| {
                victim.cancel();
                victim.name().unwrap().to_owned()
            })
        };
        match victim {
            Some(name) => return name,
            None => tokio::task::yield_now().await,
        }
    }
}

#[test]
fn worker_that_is_killed_under_load_fails_its_own_request_and_no_other() {
    for (farm, name) in [(None, "connection"), (Some(FEW), "file worker ")] {
        let scratch = Scratch::new();
        scratch.file("small", "krill");
        scratch.file("large", vec![7; 50_000_000]);
        dunlin::block_on(async {
            let server = serve_as(&scratch, patient(), farm).await;
            let to = server.address.to_string();
            // The only one that takes long: its client reads nothing.
            let mut victim = Client::connect(&to).await;
            victim.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await;
            let first = victim.connection.read(1).await.unwrap();
            let (stop, stopped) = channel::<()>();
            let stopped = stopped.share();
            // As many as there are readers would leave none for the next.
            let load: Vec<_> = (0..3)
                .map(|_| {
                    let (to, mut stopped) = (to.clone(), stopped.clone());
                    spawn(async move {
                        let (mut client, mut count) = (Client::connect(&to).await, 0);
                        while stopped.try_recv().is_err_and(|error| !error.is_closed()) {
                            assert_eq!(client.get("/small").await.text(), "krill");
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            while server.site.stats.responses(2) < 100 {
                tokio::task::yield_now().await;
            }
            let before = names(&server.site);
            let killed = if farm.is_some() {
                kill(&server.site, name).await
            } else {
                // The first connection: the others wait for descriptors, too.
                let processes = server.site.processes.lock().unwrap();
                processes[0].cancel();
                processes[0].name().unwrap().to_owned()
            };
            victim.unread(&first);
            let response = victim.response(false).await.unwrap();
            assert!(!response.is_whole && response.body.iter().all(|byte| *byte == 7));
            let seen = server.site.stats.responses(2);
            while server.site.stats.responses(2) < seen + 100 {
                tokio::task::yield_now().await;
            }
            drop(stop);
            let mut count = 0;
            for load in load {
                count += load.await.unwrap();
            }
            // A client may receive its response before it is counted.
            while server.site.stats.responses(2) < count {
                tokio::task::yield_now().await;
            }
            assert!(count >= 200 && server.site.stats.responses(2) == count, "{count}");
            assert_eq!([4, 5].map(|hundred| server.site.stats.responses(hundred)), [0, 0]);
            if farm.is_some() {
                // Another one has taken its place.
                let replaced = |names: &BTreeSet<(String, Pid)>| {
                    names.iter().any(|process| process.0 == killed && !before.contains(process))
                };
                while !replaced(&names(&server.site)) {
                    tokio::task::yield_now().await;
                }
            }
            server.stop().await.unwrap();
        });
    }
}

#[test]
fn each_process_of_the_farm_has_a_name_and_waits() {
    let scratch = Scratch::new();
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(NUMBERS)).await;
        let all = names(&server.site);
        for (name, count) in [("reader ", 128), ("file worker ", 256), ("CGI worker ", 32), ("keeper", 1)] {
            assert_eq!(all.iter().filter(|process| process.0.starts_with(name)).count(), count, "{name}");
        }
        assert_eq!(all.len(), 417);
        let shown = || -> BTreeSet<Pid> { waits::snapshot().into_iter().map(|wait| wait.who).collect() };
        while !all.iter().all(|process| shown().contains(&process.1)) {
            tokio::task::yield_now().await;
        }
        let site = Arc::downgrade(&server.site);
        server.stop().await.unwrap();
        // All of them have ended.
        while site.upgrade().is_some_and(|site| !names(&site).is_empty()) {
            tokio::task::yield_now().await;
        }
    });
}

/// More connections than readers and workers, so that each waits for the others.
#[test]
fn farm_serves_files_and_programs_over_more_connections_than_it_has_processes() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    scratch.program("good", "printf 'Content-Type: a/b\\n\\nsquid'");
    scratch.program("bad", "exit 1");
    scratch.program("local", "printf 'Location: /x\\n\\n'");
    scratch.program("twice", "printf 'Location: /cgi-bin/local\\n\\n'");
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(FEW)).await;
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let to = server.address.to_string();
                spawn(async move {
                    let mut client = Client::connect(&to).await;
                    let expected = [
                        ("/x", 200, "krill"),
                        ("/cgi-bin/good", 200, "squid"),
                        ("/cgi-bin/bad", 502, ""),
                        ("/cgi-bin/local", 200, "krill"),
                        ("/none", 404, ""),
                        ("/cgi-bin/twice", 200, "krill"),
                    ];
                    for (path, status, text) in expected {
                        let response = client.get(path).await;
                        assert_eq!(response.status, status, "{path}");
                        assert!(status != 200 || response.text() == text, "{path}");
                    }
                    let last = client.request("GET /x", "Connection: close\r\n").await;
                    assert_eq!(last.text(), "krill");
                    assert!(client.is_at_end().await);
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!([2, 4, 5].map(|hundred| server.site.stats.responses(hundred)), [100, 20, 20]);
        server.stop().await.unwrap();
    });
}

#[test]
fn farm_refuses_connections_beyond_the_limit() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    dunlin::block_on(async {
        let limits = Limits { connections_max: 1, ..patient() };
        let server = serve_as(&scratch, limits, Some(FEW)).await;
        let to = server.address.to_string();
        let mut first = Client::connect(&to).await;
        assert_eq!(first.get("/x").await.text(), "krill");
        let mut second = Client::connect(&to).await;
        assert_eq!(second.response(false).await.unwrap().status, 503);
        drop(second);
        assert_eq!(first.get("/x").await.text(), "krill");
        drop(first);
        server.stop().await.unwrap();
    });
}

/// Whether the process with this name waits for a descriptor.
fn waits_for_a_descriptor(site: &Site, name: &str) -> bool {
    let waits = waits::snapshot();
    let processes = site.processes.lock().unwrap();
    let named: Vec<Pid> = processes.iter().filter(|p| p.name() == Some(name)).map(|p| p.pid().into()).collect();
    waits.iter().any(|wait| wait.doing == Doing::Ready && named.contains(&wait.who))
}

#[test]
fn process_of_each_kind_that_is_killed_is_replaced() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    scratch.program("good", "printf 'Content-Type: a/b\\n\\nsquid'");
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(FEW)).await;
        let before = names(&server.site);
        let is_worker = |name: &str| name != "keeper";
        for process in server.site.processes.lock().unwrap().iter().filter(|p| is_worker(p.name().unwrap())) {
            process.cancel();
        }
        let killed = before.iter().filter(|(name, _)| is_worker(name));
        for (name, pid) in killed {
            let replaced = |process: &(String, Pid)| process.0 == *name && process.1 != *pid;
            while !names(&server.site).iter().any(replaced) {
                tokio::task::yield_now().await;
            }
        }
        let mut client = Client::connect(&server.address.to_string()).await;
        assert_eq!(client.get("/x").await.text(), "krill");
        assert_eq!(client.get("/cgi-bin/good").await.text(), "squid");
        drop(client);
        server.stop().await.unwrap();
    });
}

/// The only file worker is busy with a client that reads nothing, and the CGI worker is not.
#[test]
fn cgi_workers_run_programs_and_file_workers_send_error_pages() {
    let scratch = Scratch::new();
    scratch.file("large", vec![7; 20_000_000]);
    scratch.program("good", "printf 'Content-Type: a/b\\n\\nsquid'");
    scratch.program("bad", "exit 1");
    let numbers = Numbers { readers: 4, files: 1, programs: 1 };
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(numbers)).await;
        let to = server.address.to_string();
        let mut stuck = Client::connect(&to).await;
        stuck.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let first = stuck.connection.read(1).await.unwrap();
        let (mut bad, mut good) = (Client::connect(&to).await, Client::connect(&to).await);
        assert_eq!(good.get("/cgi-bin/good").await.text(), "squid");
        bad.send("GET /cgi-bin/bad HTTP/1.1\r\nHost: h\r\n\r\n").await;
        while !names(&server.site).iter().any(|(name, pid)| name == "CGI worker 1" && sends(*pid)) {
            tokio::task::yield_now().await;
        }
        let mut byte = [0; 1];
        let answered = recv(&bad.connection, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        assert_eq!(answered.unwrap_err(), rustix::io::Errno::AGAIN, "a file worker is to answer");
        stuck.unread(&first);
        assert_eq!(stuck.response(false).await.unwrap().body.len(), 20_000_000);
        assert_eq!(bad.response(false).await.unwrap().status, 502);
        drop((stuck, bad, good));
        server.stop().await.unwrap();
    });
}

/// Whether it waits to send on a channel.
fn sends(pid: Pid) -> bool {
    waits::snapshot().iter().any(|wait| wait.who == pid && wait.doing == Doing::Send)
}

#[test]
fn reader_serves_next_client_after_farm_answers_malformed_request() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    let numbers = Numbers { readers: 1, files: 1, programs: 1 };
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(numbers)).await;
        let to = server.address.to_string();
        let mut client = Client::connect(&to).await;
        client.send("krill\r\n\r\n").await;
        let response = client.response(false).await.unwrap();
        assert_eq!((response.status, response.header("Connection")), (400, Some("close")));
        assert!(client.is_at_end().await);
        drop(client);
        assert_eq!(Client::connect(&to).await.get("/x").await.text(), "krill");
        server.stop().await.unwrap();
    });
}

/// The only reader waits for the rest of a head, so no reader takes the second connection.
#[test]
fn stop_does_not_wait_for_a_reader() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    let numbers = Numbers { readers: 1, files: 1, programs: 1 };
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(numbers)).await;
        let to = server.address.to_string();
        let mut first = Client::connect(&to).await;
        first.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\nGET /x HTTP/1.1\r\nHo").await;
        assert_eq!(first.response(false).await.unwrap().text(), "krill");
        while !waits_for_a_descriptor(&server.site, "reader 1") {
            tokio::task::yield_now().await;
        }
        let mut second = Client::connect(&to).await;
        while server.site.stats.accepted.get() < 2 {
            tokio::task::yield_now().await;
        }
        let ((), ()) = par!(async { server.stop().await.unwrap() }, async {
            assert!(second.is_at_end().await);
            first.send("st: h\r\n\r\n").await;
            assert_eq!(first.response(false).await.unwrap().text(), "krill");
        });
    });
}

/// The server lets a client read the sent bytes before it ends the connection. No worker waits for that.
#[test]
fn client_with_an_open_connection_delays_no_worker() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    let numbers = Numbers { readers: 2, files: 1, programs: 1 };
    dunlin::block_on(async {
        let server = serve_as(&scratch, patient(), Some(numbers)).await;
        let to = server.address.to_string();
        // On a busy machine, a second connection may arrive after the server's wait.
        let mut attempts = 0;
        loop {
            let (mut stays, mut other) = (Client::connect(&to).await, Client::connect(&to).await);
            while server.site.stats.connections.get() < 2 {
                tokio::task::yield_now().await;
            }
            // The client may still be sending the byte.
            assert_eq!(stays.request("GET /x", "Content-Length: 1\r\n").await.text(), "krill");
            assert_eq!(other.get("/x").await.text(), "krill");
            if server.site.stats.connections.get() == 2 {
                break;
            }
            attempts += 1;
            assert!(attempts < 5, "the worker has waited for the end of the connection");
            drop((stays, other));
            while server.site.stats.connections.get() > 0 {
                tokio::task::yield_now().await;
            }
        }
        server.stop().await.unwrap();
    });
}

/// A wait for the client's end would take as long as the client likes.
#[test]
fn connection_is_closed_after_the_request_that_its_client_has_announced_as_the_last() {
    let scratch = Scratch::new();
    scratch.file("x", "krill");
    for farm in [None, Some(FEW)] {
        dunlin::block_on(async {
            let limits = Limits { close: patient().idle, ..patient() };
            let server = serve_as(&scratch, limits, farm).await;
            let mut client = Client::connect(&server.address.to_string()).await;
            assert_eq!(client.request("GET /x", "Connection: close\r\n").await.text(), "krill");
            while server.site.stats.connections.get() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(client.is_at_end().await);
            server.stop().await.unwrap();
        });
    }
}
