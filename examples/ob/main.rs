//! A load generator for web servers, after the one of Barnes (2000): it keeps a number of requests in flight.
//!
//! Run it beside the example `webserver`:
//! `cargo run --release --example ob -- http://127.0.0.1:8080/ -n 100000 -c 10 -k`

pub(crate) mod command;
pub(crate) mod histogram;
pub(crate) mod load;

use std::process::ExitCode;

use command::{HELP, parse};
use load::Report;

fn main() -> ExitCode {
    ExitCode::from(run(std::env::args().skip(1)))
}

/// Runs the command, and returns its exit code: 1 if a request has failed, 2 for a wrong command line.
pub(crate) fn run(arguments: impl Iterator<Item = String>) -> u8 {
    let (plan, histogram) = match parse(arguments) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            println!("{HELP}");
            return 0;
        }
        Err(text) => {
            eprintln!("ob: {text}\n\n{HELP}");
            return 2;
        }
    };
    let report = dunlin::block_on(load::run(plan));
    print(&report);
    if histogram {
        print!("{}", report.latencies.bars());
    }
    u8::from(report.failed > 0)
}

fn print(report: &Report) {
    let (latencies, seconds) = (&report.latencies, report.took.as_secs_f64());
    println!("responses      {}, of them {} not 2xx", latencies.count(), report.not_ok);
    let why = report.first_failure.as_deref().map_or(String::new(), |why| format!(", the first: {why}"));
    println!("failed         {}{why}", report.failed);
    println!("seconds        {seconds:.3}");
    println!("per second     {:.1}", latencies.count() as f64 / seconds);
    println!("MB per second  {:.3}", report.bytes as f64 / seconds / 1e6);
    println!("mean           {:.1?}", latencies.mean());
    for part in [0.5, 0.9, 0.99, 0.999] {
        println!("p{:<13} {:.1?}", part * 100.0, latencies.quantile(part));
    }
    println!("max            {:.1?}", latencies.max());
}
