//! A load generator for web servers, after the one of Barnes (2000): it keeps so many requests in flight.
//!
//! Run it beside the example `webserver`:
//! `cargo run --release --example ob -- http://127.0.0.1:8080/ -n 100000 -c 10 -k`

mod histogram;
mod load;

use std::process::ExitCode;
use std::time::Duration;

use load::{Pace, Plan, Report};

const HELP: &str = "\
Usage: ob URL [-n REQUESTS] [-c IN_FLIGHT] [-k] [--waves | --rate REQUESTS_PER_SECOND] [--timeout SECONDS] [--histogram]

  -n REQUESTS     how many requests, 1000 if it is not given
  -c IN_FLIGHT    how many at once, 1 if it is not given
  -k              keep connections; without it, each request has one of its own
  --waves         begin requests when all in flight have ended
  --rate R        begin R requests a second; latencies count from the planned beginning
  --timeout S     a request without a response after so many seconds has failed, 30 if it is not given
  --histogram     print the latencies by powers of two";

fn main() -> ExitCode {
    let (plan, histogram) = match parse(std::env::args().skip(1)) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(text) => {
            eprintln!("ob: {text}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let report = dunlin::block_on(load::run(plan));
    print(&report);
    if histogram {
        print!("{}", report.latencies.bars());
    }
    if report.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<(Plan, bool)>, String> {
    let (mut url, mut histogram) = (None, false);
    let mut plan = Plan {
        address: String::new(),
        path: String::new(),
        requests: 1_000,
        in_flight: 1,
        keep_alive: false,
        pace: Pace::Flow,
        patience: Duration::from_secs(30),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match &*argument {
            "--help" | "-h" => return Ok(None),
            "-n" => plan.requests = positive(&argument, &value()?)? as u64,
            "-c" => plan.in_flight = positive(&argument, &value()?)? as usize,
            "-k" => plan.keep_alive = true,
            "--waves" => plan.pace = Pace::Waves,
            "--rate" => plan.pace = Pace::Rate(positive(&argument, &value()?)?),
            "--timeout" => plan.patience = Duration::from_secs_f64(positive(&argument, &value()?)?),
            "--histogram" => histogram = true,
            _ if !argument.starts_with('-') => url = Some(argument),
            _ => return Err(format!("unknown argument {argument}")),
        }
    }
    let url = url.ok_or("the URL is missing")?;
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url} does not begin with http://"))?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    plan.address = if has_port { host.to_owned() } else { format!("{host}:80") };
    plan.path = path.to_owned();
    Ok(Some((plan, histogram)))
}

/// A number from one millionth to a billion.
fn positive(argument: &str, text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1e-6..=1e9).contains(number));
    let number: f64 = number.ok_or_else(|| format!("{argument} needs a positive number, not {text}"))?;
    if matches!(argument, "-n" | "-c") && (number < 1.0 || number.fract() != 0.0) {
        return Err(format!("{argument} needs a whole number, not {text}"));
    }
    Ok(number)
}
