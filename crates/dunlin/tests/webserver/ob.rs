//! The example `ob`: its requests in flight, and its measurements.

use dunlin::io::{Bytes, Connection, Listener, tcp};
use dunlin::prelude::*;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use super::ob_example::command::parse;
use super::ob_example::histogram::Histogram;
use super::ob_example::load::{Pace, Plan, run};
use super::{ob_example, with_server};

fn plan(address: &str, requests: u64, in_flight: usize, pace: Pace) -> Plan {
    Plan {
        address: address.to_owned(),
        path: "/x".to_owned(),
        requests,
        in_flight,
        keep_alive: false,
        pace,
        patience: Duration::from_secs(300),
    }
}

/// The next request, on a connection of its own.
async fn request(listener: &mut Listener) -> Connection {
    let mut connection = listener.accept().await.unwrap();
    let request = connection.read(4096).await.unwrap();
    assert!(request.starts_with(b"GET /x HTTP/1.1\r\nHost: "), "{request:?}");
    connection
}

async fn answer(mut connection: Connection) {
    let mut response = Bytes::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nkrill");
    connection.write_all(&mut response).await.unwrap();
}

#[test]
fn requests_get_their_responses_over_kept_connections_or_new_ones() {
    with_server(
        |scratch| drop(scratch.file("x", vec![0; 100_000])),
        |site| async move {
            for keep_alive in [true, false] {
                let before = site.stats.accepted.get();
                let report = run(Plan { keep_alive, ..plan(&site.address, 100, 7, Pace::Flow) }).await;
                assert_eq!((report.latencies.count(), report.not_ok, report.failed), (100, 0, 0));
                assert!(report.bytes > 100 * 100_000);
                let accepted = site.stats.accepted.get() - before;
                // Any worker may have the next ticket.
                assert!(if keep_alive { accepted <= 7 } else { accepted == 100 }, "{accepted}");
            }
            let report = run(Plan { path: "/none".to_owned(), ..plan(&site.address, 10, 2, Pace::Waves) }).await;
            assert_eq!((report.latencies.count(), report.not_ok, report.failed), (10, 10, 0));
        },
    );
}

/// The server answers when it has four requests, so fewer in flight would wait for ever; and one at a time,
/// so the next request of a flow arrives before the other answers.
#[test]
fn flow_keeps_as_many_requests_in_flight() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(plan(&address, 40, 4, Pace::Flow)), async {
            let mut open = std::collections::VecDeque::new();
            for _ in 0..40 {
                open.push_back(request(&mut listener).await);
                if open.len() == 4 {
                    answer(open.pop_front().unwrap()).await;
                }
            }
            for connection in open {
                answer(connection).await;
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (40, 0));
    });
}

#[test]
fn wave_begins_when_the_one_before_has_ended() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(plan(&address, 10, 4, Pace::Waves)), async {
            for wave in [4, 4, 2] {
                let mut open = Vec::new();
                for _ in 0..wave {
                    open.push(request(&mut listener).await);
                }
                let last = open.pop().unwrap();
                for connection in open {
                    answer(connection).await;
                }
                alt! {
                    early = listener.accept() => panic!("{early:?}"),
                    () = sleep(Duration::from_millis(20)) => {}
                }
                answer(last).await;
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (10, 0));
    });
}

/// A server that stops for a moment delays all requests of that time, also those that could not be sent.
#[test]
fn latency_at_a_rate_counts_from_the_planned_beginning() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(plan(&address, 10, 1, Pace::Rate(100.0))), async {
            let first = request(&mut listener).await;
            sleep(Duration::from_millis(200)).await;
            answer(first).await;
            for _ in 1..10 {
                let connection = request(&mut listener).await;
                answer(connection).await;
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (10, 0));
        // The last one was planned for 90 ms.
        assert!(report.latencies.quantile(0.0) >= Duration::from_millis(100), "{:?}", report.latencies.quantile(0.0));
        assert!(report.took >= Duration::from_millis(190));
    });
}

#[test]
fn request_at_a_rate_does_not_begin_before_its_time() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(plan(&address, 10, 10, Pace::Rate(100.0))), async {
            for _ in 0..10 {
                answer(request(&mut listener).await).await;
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (10, 0));
        assert!(report.took >= Duration::from_millis(90), "{:?}", report.took);
    });
}

/// Even though the generator has asked for keep-alive.
#[test]
fn connection_that_the_server_ends_is_not_used_again() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(Plan { keep_alive: true, ..plan(&address, 3, 1, Pace::Flow) }), async {
            let closes = "HTTP/1.1 200 OK\r\nconnection: Close\r\nContent-Length: 5\r\n\r\nkrill";
            // Its end is the end of the body.
            let ends = "HTTP/1.1 200 OK\r\n\r\nkrill";
            for response in [closes, ends, closes] {
                let mut connection = request(&mut listener).await;
                connection.write_all(&mut Bytes::from(response)).await.unwrap();
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (3, 0), "{report:?}");
    });
}

#[test]
fn requests_without_a_whole_response_have_failed() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let responses = [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nkril",
            "krill\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ];
        let (report, ()) = par!(run(plan(&address, 5, 1, Pace::Flow)), async {
            for response in responses {
                let mut connection = request(&mut listener).await;
                connection.write_all(&mut Bytes::from(response)).await.unwrap();
            }
        });
        assert_eq!((report.latencies.count(), report.failed), (0, 5));
        // A dropped listener could live on in a program that another test starts.
        let nobody = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&nobody, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = std::net::SocketAddr::try_from(getsockname(&nobody).unwrap()).unwrap().to_string();
        let report = run(plan(&address, 3, 2, Pace::Flow)).await;
        assert_eq!(report.failed, 3);
        assert!(report.first_failure.unwrap().contains("refused"));
    });
}

#[test]
fn request_without_response_fails_at_its_deadline() {
    dunlin::block_on(async {
        let listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let report = run(Plan { patience: Duration::from_millis(20), ..plan(&address, 2, 1, Pace::Flow) }).await;
        assert_eq!(report.failed, 2);
    });
}

/// A redirection is no success, since it was not followed.
#[test]
fn status_outside_2xx_is_counted_as_not_ok() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let address = listener.address().unwrap().to_string();
        let (report, ()) = par!(run(plan(&address, 6, 1, Pace::Flow)), async {
            for status in [199, 200, 299, 300, 404, 500] {
                let mut connection = request(&mut listener).await;
                let mut response = Bytes::from(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n"));
                connection.write_all(&mut response).await.unwrap();
            }
        });
        assert_eq!((report.latencies.count(), report.not_ok, report.failed), (6, 4, 0));
    });
}

#[test]
fn command_line_is_a_plan_or_refused() {
    let parsed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
    let (plan, histogram) = parsed("http://krill").unwrap().unwrap();
    assert_eq!((&*plan.address, &*plan.path, histogram), ("krill:80", "/", false));
    assert_eq!((plan.requests, plan.in_flight, plan.keep_alive, plan.pace), (1_000, 1, false, Pace::Flow));
    let line = "-n 7 -c 3 -k --rate 0.5 --timeout 2 --histogram http://[::1]:8080/a/b?c";
    let (plan, histogram) = parsed(line).unwrap().unwrap();
    assert_eq!((&*plan.address, &*plan.path, histogram), ("[::1]:8080", "/a/b?c", true));
    assert_eq!((plan.requests, plan.in_flight, plan.keep_alive, plan.pace), (7, 3, true, Pace::Rate(0.5)));
    assert_eq!(plan.patience, Duration::from_secs(2));
    assert_eq!(parsed("http://[::1] --waves").unwrap().unwrap().0.address, "[::1]:80");
    assert_eq!(parsed("http://h:1/ --waves").unwrap().unwrap().0.pace, Pace::Waves);
    assert!(parsed("--help").unwrap().is_none());
    for bad in [
        "",
        "-k",
        "https://h/",
        "h:80/",
        "http://h/ -n",
        "http://h/ -n 0",
        "http://h/ -n 0.5",
        "http://h/ -n 1.5",
        "http://h/ -c 0",
        "http://h/ -c -1",
        "http://h/ -c x",
        "http://h/ --rate 0",
        "http://h/ --rate inf",
        "http://h/ --rate nan",
        "http://h/ --timeout 0",
        "http://h/ --krill",
    ] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
}

#[test]
fn exit_code_reports_failed_requests_and_wrong_arguments() {
    /// The command starts a runtime of its own.
    async fn exit_code(line: String) -> u8 {
        let command = move || ob_example::run(line.split_whitespace().map(str::to_owned));
        blocking(|_| std::thread::spawn(command).join().unwrap()).await.unwrap()
    }
    with_server(
        |scratch| drop(scratch.file("x", "krill")),
        |site| async move {
            let url = format!("http://{}", site.address);
            assert_eq!(exit_code(format!("{url}/x -n 5 -c 2 --histogram")).await, 0);
            // Each request has a response.
            assert_eq!(exit_code(format!("{url}/none -n 5")).await, 0);
            assert_eq!(exit_code("--help".to_owned()).await, 0);
            assert_eq!(exit_code(format!("{url}/x --krill")).await, 2);
            let unused = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&unused, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let refused = std::net::SocketAddr::try_from(getsockname(&unused).unwrap()).unwrap();
            assert_eq!(exit_code(format!("http://{refused}/x -n 5")).await, 1);
        },
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// To 1.6 %, from nanoseconds to centuries.
    #[test]
    fn quantiles_are_those_of_the_sorted_latencies(
        latencies in proptest::collection::vec((0_u64..64, 0_u64..1 << 20), 1..50),
        part in 0.0_f64..1.0,
    ) {
        let mut all: Vec<u64> = latencies.iter().map(|(shift, n)| n.checked_shl(*shift as u32).unwrap_or(0)).collect();
        let (mut histogram, mut half) = (Histogram::new(), Histogram::new());
        for (index, ns) in all.iter().enumerate() {
            let into = if index % 2 == 0 { &mut histogram } else { &mut half };
            into.add(Duration::from_nanos(*ns));
        }
        histogram.merge(&half);
        all.sort_unstable();
        let rank = ((all.len() as f64 * part).ceil() as usize).max(1);
        let (exact, found) = (all[rank - 1], histogram.quantile(part).as_nanos() as u64);
        prop_assert!(exact <= found && found - exact <= exact / 63, "{exact} {found}");
        prop_assert_eq!(histogram.count(), all.len() as u64);
        prop_assert_eq!(histogram.max().as_nanos() as u64, *all.last().unwrap());
        let sum: u128 = all.iter().map(|ns| u128::from(*ns)).sum();
        prop_assert_eq!(histogram.mean().as_nanos(), sum / all.len() as u128);
        let in_bars: u64 = histogram.bars().lines().map(|bar| bar.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
        prop_assert_eq!(in_bars, all.len() as u64);
    }
}
