//! The command line.

use std::time::Duration;

use super::load::{Pace, Plan};

pub(crate) const HELP: &str = "\
Usage: ob URL [-n REQUESTS] [-c IN_FLIGHT] [-k] [--waves | --rate REQUESTS_PER_SECOND] [--timeout SECONDS] [--histogram]

  -n REQUESTS     how many requests, 1000 if it is not given
  -c IN_FLIGHT    how many at once, 1 if it is not given
  -k              keep connections; without it, each request has one of its own
  --waves         begin requests when all in flight have ended
  --rate R        begin R requests a second; latencies count from the planned beginning
  --timeout S     a request without a response after so many seconds has failed, 30 if it is not given
  --histogram     print the latencies by powers of two";

/// The plan, and whether to print a histogram; `None` to print the help.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<(Plan, bool)>, String> {
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
    if matches!(argument, "-n" | "-c") && number.fract() != 0.0 {
        return Err(format!("{argument} needs a whole number, not {text}"));
    }
    Ok(number)
}
