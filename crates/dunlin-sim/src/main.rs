fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().unwrap().parse().unwrap();
    let n: u64 = args.next().unwrap().parse().unwrap();
    let third = args.next();
    let trace = third.is_some();
    if third.as_deref() == Some("bugs") {
        for bug in dunlin_proto::planted::Bug::ALL {
            dunlin_proto::planted::choose(Some(*bug));
            let mut found = false;
            for seed in from..from + n {
                let r = std::panic::catch_unwind(|| dunlin_sim::run(seed, false));
                match r {
                    Err(_) => { println!("{} {seed} PANIC", bug.name()); found = true; break; }
                    Ok(r) if r.verdict != dunlin_sim::Verdict::Clean => { println!("{} {seed} {:?}", bug.name(), r.verdict); found = true; break; }
                    _ => {}
                }
            }
            if !found { println!("{} NOT FOUND", bug.name()); }
        }
        return;
    }
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
