fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().unwrap().parse().unwrap();
    let n: u64 = args.next().unwrap().parse().unwrap();
    let trace = args.next().is_some();
    let mut all = dunlin_sim::Coverage::default();
    let mut bad = 0;
    for seed in from..from + n {
        let r = dunlin_sim::run(seed, trace);
        if trace { r.trace.iter().for_each(|l| println!("{l}")); }
        if r.verdict != dunlin_sim::Verdict::Clean { println!("{seed} {:?}", r.verdict); bad += 1; if bad > 30 { break; } }
        all.add(&r.coverage);
    }
    if !trace { println!("{all}"); }
}
