//! Channels between Scheme processes, and between Scheme and Rust.

use dunlin::{Receiver, RecvError, Sender, Shared, block_on, channel, channel_with, fifo, mailbox, spawn};
use dunlin_scheme::{Error, Scheme, value_of};
use dunlin_scheme_host::{ChannelEnd, End, EndError, EndKind, LocalChannels, ProcessNumber, Program, Value};
use serde::{Deserialize, Serialize};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn machine() -> Scheme {
    let mut scheme = Scheme::new();
    scheme.set_channels(LocalChannels::default());
    scheme
}

/// What a text ends with in a machine without tasks, also one in which each process is written and read at
/// each park, and as a process of dunlin's.
fn everywhere(text: &str, expected: &str) {
    let shown = machine().eval("test", text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(shown, expected, "without tasks: {text}");
    let mut scheme = machine();
    scheme.set_rewrite(true);
    let shown = scheme.eval("test", text).unwrap_or_else(|error| panic!("{error}, rewritten: {text}"));
    assert_eq!(shown, expected, "rewritten: {text}");
    let shown = block_on(async { Result::Ok(Program::new().spawn("test", text)?.await?.to_string()) });
    assert_eq!(shown.unwrap_or_else(|error| panic!("{error}, as tasks: {text}")), expected, "as tasks: {text}");
}

/// What an expression raises: the kind of the error object and its text, or the object.
fn raises(definitions: &str, expression: &str, expected: &str) {
    let text = format!(
        "{definitions}
        (guard (e ((error-object? e) (list (error-object-kind e) (error-object-message e) (map (lambda (object) (if (or (channel-sender? object) (channel-receiver? object)) 'an-end object))
                        (error-object-irritants e))))
                  (#t (list 'raised e)))
          {expression})"
    );
    everywhere(&text, expected);
}

const CHANNEL: &str = "(define-values (out in) (make-channel)) (define me (self))";

#[test]
fn send_is_done_when_it_was_received() {
    let text = format!(
        "{CHANNEL}
        (spawn (lambda () (channel-send out 'krill) (! me 'sent)))
        (define before (? .02 'waits))
        (define got (channel-receive in))
        (list before got (?))"
    );
    everywhere(&text, "(waits krill sent)");
    // Two values may wait in this one.
    let text = "(define-values (out in) (make-channel 2))
        (define sent (list (channel-send out 1 0 'full) (channel-send out 2 0 'full) (channel-send out 3 0 'full)))
        (list (third sent) (channel-receive in) (channel-receive in) (channel-receive in 0 'empty))";
    everywhere(text, "(full 1 2 empty)");
}

#[test]
fn values_arrive_in_order_and_the_end_is_an_eof_object() {
    let text = format!(
        "{CHANNEL}
        (define (numbers out n) (if (= n 0) 'end (begin (channel-send out n) (numbers out (- n 1)))))
        (spawn (lambda () (numbers out 50)))
        (define (sum so-far)
          (let ((n (channel-receive in))) (if (eof-object? n) so-far (sum (+ (* 2 so-far) n)))))
        (= (sum 0) (let loop ((n 50) (so-far 0)) (if (= n 0) so-far (loop (- n 1) (+ (* 2 so-far) n)))))"
    );
    everywhere(&text, "#t");
}

#[test]
fn send_fails_where_nothing_receives_any_more() {
    raises(CHANNEL, "(channel-leave in) (channel-send out 1)", "(closed \"the channel has ended\" ())");
    raises(
        CHANNEL,
        "(spawn (lambda () (channel-poison in \"too warm\"))) (channel-send out 1)",
        "(poison \"the channel was poisoned:\" (\"too warm\"))",
    );
    raises(
        CHANNEL,
        "(channel-poison out \"too warm\") (channel-receive in)",
        "(poison \"the channel was poisoned:\" (\"too warm\"))",
    );
    // What waits in the channel is received first.
    let text = "(define-values (out in) (make-channel 3))
        (channel-send out 1) (channel-send out 2) (channel-retire out)
        (list (channel-receive in) (channel-receive in) (eof-object? (channel-receive in)))";
    everywhere(text, "(1 2 #t)");
}

#[test]
fn alt_takes_the_clause_that_is_possible_first() {
    let text = "
        (define-values (jobs-out jobs) (make-channel))
        (define-values (out results) (make-channel))
        (define (store jobs out held)
          (alt
            ((channel-receive jobs job) (where (< (length held) 3))
             (if (eof-object? job) 'end (store jobs out (append held (list job)))))
            ((channel-send out (car held)) (where (pair? held)) (store jobs out (cdr held)))))
        (spawn (lambda () (store jobs out '())))
        (channel-send jobs-out 1) (channel-send jobs-out 2) (channel-send jobs-out 3)
        (define fourth (channel-send jobs-out 4 .02 'full))
        (define first (channel-receive results))
        (channel-send jobs-out 4)
        (list fourth first (channel-receive results) (channel-receive results) (channel-receive results)
              (channel-receive results .02 'empty))";
    everywhere(text, "(full 1 2 3 4 empty)");
}

#[test]
fn alt_has_a_time_limit_and_a_clause_for_nothing() {
    let clauses = |last: &str| format!("{CHANNEL} (alt ((channel-receive in v) (list 'got v)) {last})");
    everywhere(&clauses("(after .01 'late)"), "late");
    everywhere(&clauses("(after 0 'late)"), "late");
    everywhere(&clauses("(else 'nothing)"), "nothing");
    everywhere(&format!("{CHANNEL} (alt ((channel-send out 1) (where #f) 'sent) (after .01 'late))"), "late");
    everywhere(&format!("{CHANNEL} (alt ((channel-send out 1) (where #f) 'sent) (else 'off))"), "off");
    raises(
        CHANNEL,
        "(alt ((channel-send out (raise 'evaluated)) (where #f)))",
        "(channel \"no clause of this alt can ever be chosen\" ())",
    );
    raises(CHANNEL, "(channel-receive in .01)", "(raised timeout)");
    everywhere(
        &format!("{CHANNEL} (list (channel-send out 1 .01 'late) (channel-receive in .01 'none))"),
        "(late none)",
    );
}

#[test]
fn alt_is_fair_unless_it_is_biased() {
    let text = |biased: &str| {
        format!(
            "(define-values (a-out a) (make-channel 100))
            (define-values (b-out b) (make-channel 100))
            (define (fill end n) (if (> n 0) (begin (channel-send end n) (fill end (- n 1)))))
            (fill a-out 100) (fill b-out 100)
            (define (count n a-count)
              (if (= n 0) a-count
                  (alt {biased} ((channel-receive a v) (count (- n 1) (+ a-count 1)))
                                ((channel-receive b v) (count (- n 1) a-count)))))
            (count 40 0)"
        )
    };
    everywhere(&text("biased"), "40");
    everywhere(&text(""), "20");
}

#[test]
fn body_of_alt_is_a_tail_call_with_definitions_of_its_own() {
    let text = format!(
        "{CHANNEL}
        (define-values (full-out full) (make-channel 1))
        (define (loop n)
          (if (= n 0) 'end
              (alt ((channel-send full-out n) (loop (- n 1)))
                   ((channel-receive full v) (define next (- n 1)) (loop next)))))
        (loop 3000)"
    );
    // (Otherwise so many frames would not fit this.)
    let mut scheme = machine();
    scheme.set_heap_limit(400_000);
    assert_eq!(scheme.eval("test", &text).unwrap(), "end");
}

#[test]
fn values_are_data_and_keep_their_shape() {
    everywhere(
        "(define-values (out in) (make-channel 9))
        (define (through value) (channel-send out value) (channel-receive in))
        (define tag (make-tag))
        (list (map through (list 1 (expt 2 100) 1/3 .5 #\\a \"text\" 'name #t '() '(1 . 2) '#(1 (2)) (bytevector 1)))
              (eq? tag (through tag)) (eq? (self) (through (self))))",
        "((1 1267650600228229401496703205376 1/3 0.5 #\\a \"text\" name #t () (1 . 2) #(1 (2)) #u8(1)) #t #t)",
    );
}

const NOT_HELD: &str = "(guard (e ((error-object? e) (error-object-kind e))) ";

#[test]
fn end_belongs_to_the_process_that_uses_it_first() {
    let text = format!(
        "{CHANNEL}
        (spawn (lambda () (channel-send out 1) (! me (self)) (?)))
        (define got (channel-receive in))
        (?)
        (list got {NOT_HELD} (channel-send out 2)) (channel-sender? out) (channel-receiver? out) (channel-shared? out))"
    );
    everywhere(&text, "(1 end #t #f #f)");
}

#[test]
fn message_and_new_process_take_ends_along() {
    // A message, to a process that hands the end back with what it did.
    let text = format!(
        "{CHANNEL}
        (define (answer n) (recv ((from end) (channel-send end n) (! from end) (answer (+ n 1)))))
        (define server (spawn (lambda () (answer 1))))
        (define (ask out)
          (! server (list me out))
          (list {NOT_HELD} (channel-send out 0)) (channel-receive in) (eq? (?) out)))
        (list (ask out) (ask out))"
    );
    everywhere(&text, "((end 1 #t) (end 2 #t))");
    // A large message, which is a segment, and a part of it.
    let text = format!(
        "{CHANNEL}
        (channel-send out 0 0 'used)
        (define large (list (iota 200) (list out)))
        (define last (spawn (lambda () (channel-send (car (?)) 'last))))
        (define first (spawn (lambda () (! last (cadr (?))))))
        (! first large)
        (list (channel-receive in) {NOT_HELD} (channel-send out 1)))"
    );
    everywhere(&text, "(last end)");
    // A procedure that is spawned.
    let text = "
        (define (start)
          (let-values (((out in) (make-channel)))
            (let ((used (channel-receive in 0 'used)))
              (spawn (lambda () (channel-send out 1) (channel-send out 2)))
              (list used (channel-receive in) (channel-receive in) (eof-object? (channel-receive in))))))
        (start)";
    everywhere(text, "(used 1 2 #t)");
}

#[test]
fn end_sent_over_a_channel_moves_when_it_was_received() {
    let text = format!(
        "{CHANNEL}
        (define-values (line-out line-in) (make-channel))
        (define late (channel-send line-out (list 'take out) .01 'late))
        (define before (channel-send out 0 0 'mine))
        (spawn (lambda () (let ((end (cadr (channel-receive line-in)))) (channel-send end 'sent))))
        (channel-send line-out (list 'take out))
        (list late before (channel-receive in) {NOT_HELD} (channel-send out 1)))"
    );
    everywhere(&text, "(late mine sent end)");
    raises(CHANNEL, "(channel-send out (list out))", "(channel \"an end is in a choice twice:\" (an-end))");
}

#[test]
fn ends_of_a_process_leave_with_it() {
    for end in ["'end", "(kill (self))", "(raise 'broken)", "(exit)"] {
        // (An exit ends the whole program of a machine without tasks.)
        let text = format!(
            "{CHANNEL} (channel-send out 0 0 'used)
            (define (end) {end})
            (spawn (let ((out out)) (lambda () (channel-send out 1) (end))))
            (list (channel-receive in) (eof-object? (channel-receive in)))"
        );
        if end == "(exit)" {
            let shown = block_on(async { Result::Ok(Program::new().spawn("test", &text)?.await?.to_string()) });
            assert_eq!(shown.unwrap(), "(1 #t)");
        } else {
            everywhere(&text, "(1 #t)");
        }
    }
    // A message to a process that has ended is dropped, with its ends.
    let text = format!(
        "{CHANNEL} (channel-send out 0 0 'used)
        (define gone (spawn (lambda () (? .01 'end)))) (sleep .05)
        (! gone out) (eof-object? (channel-receive in))"
    );
    everywhere(&text, "#t");
}

#[test]
fn process_that_waits_for_a_channel_is_killed_and_takes_nothing() {
    let text = format!(
        "{CHANNEL}
        (define other (channel-share in))
        (define waiting (spawn (lambda () (! me 'waits) (! me (channel-receive other)))))
        (?)
        (sleep .01)
        (kill waiting)
        (define kept (channel-send out 1 .02 'not-taken))
        (spawn (lambda () (! me (list 'got (channel-receive other)))))
        (channel-send out 2)
        (list kept (?))"
    );
    everywhere(&text, "(not-taken (got 2))");
}

#[test]
fn exit_of_a_linked_process_wakes_one_that_waits_for_a_channel() {
    let text = format!(
        "{CHANNEL}
        (define-values (full-out full) (make-channel))
        (define (told waits) (guard (e (#t (list 'told e))) (waits)))
        (define broken (spawn (lambda () (raise (?)))))
        (inbound-link broken) (! broken 'cold)
        (define one (told (lambda () (channel-receive in))))
        (define second (spawn (lambda () (raise (?)))))
        (inbound-link second) (! second 'warm)
        (define two (told (lambda () (alt ((channel-receive in v) v) ((channel-send full-out 1) 'sent)))))
        (spawn (lambda () (channel-send out 'after)))
        (list one two (channel-receive in))"
    );
    everywhere(&text, "((told cold) (told warm) after)");
}

#[test]
fn message_does_not_disturb_a_process_that_waits_for_a_channel() {
    let text = format!(
        "{CHANNEL}
        (define waiting (spawn (lambda () (! me (list (channel-receive in) (?))))))
        (sleep .01)
        (! waiting 'message)
        (channel-send out 'value)
        (?)"
    );
    everywhere(&text, "(value message)");
}

#[test]
fn shared_end_is_used_by_all_processes_and_claimed_by_one() {
    let text = format!(
        "{CHANNEL}
        (define out* (channel-share out))
        (define (say name)
          (call-with-claim out* (lambda (stage)
            (channel-send stage (list name 1)) (sleep .001) (channel-send stage (list name 2)))))
        (define (singer name) (spawn (lambda () (say name))))
        (singer 'a) (singer 'b) (singer 'c)
        (define (pair) (let* ((one (channel-receive in)) (two (channel-receive in)))
          (list (eq? (car one) (car two)) (cadr one) (cadr two))))
        (define pairs (list (pair) (pair) (pair)))
        (define claimed (channel-claim out*))
        (define held (channel-claim out* .01 'held))
        (channel-leave claimed)
        (spawn (lambda () (channel-send out* 'lone)))
        (list pairs held {NOT_HELD} (channel-send out 1)) (channel-shared? out*) (channel-receive in))"
    );
    everywhere(&text, "(((#t 1 2) (#t 1 2) (#t 1 2)) held end #t lone)");
    raises(
        CHANNEL,
        "(channel-share (channel-claim (channel-share in)))",
        "(channel \"a claimed end cannot be shared\" ())",
    );
    // A claim ends with its process.
    let text = format!(
        "{CHANNEL} (define in* (channel-share in))
        (define holder (spawn (lambda () (channel-claim in*) (! me 'claimed) (?))))
        (?) (define held (channel-claim in* .01 'held)) (kill holder)
        (list held (alt ((channel-claim in* claimed) (channel-receiver? claimed))))"
    );
    everywhere(&text, "(held #t)");
}

#[test]
fn wrong_use_of_an_end_is_an_error() {
    let kinds = |expression: &str, expected: &str| {
        let text = format!("{CHANNEL} {NOT_HELD} {expression})");
        everywhere(&text, expected);
    };
    kinds("(channel-send in 1)", "type");
    kinds("(channel-receive out)", "type");
    kinds("(channel-receive 7)", "type");
    kinds("(channel-claim in)", "type");
    kinds("(channel-send out car)", "channel");
    kinds("(channel-poison out 7)", "type");
    kinds("(make-channel 0)", "type");
    kinds("(make-channel 10000000)", "type");
    kinds("(channel-receive in -1)", "type");
    kinds("(begin (channel-leave in) (channel-leave in))", "end");
    kinds("(alt ((channel-receive in v) v) ((channel-receive in v) v))", "channel");
    kinds("(%operate 7 #f)", "type");
    kinds("(%operate (vector 1 #f 7) #f)", "type");
    kinds("(%operate (vector 1 #f (list 7)) #f)", "type");
    kinds("(%operate (vector 9 in) #f)", "type");
    // Without anything that carries them out.
    assert_eq!(Scheme::new().eval("test", &format!("{NOT_HELD} (make-channel))")).unwrap(), "channel");
    assert_eq!(machine().eval("test", &format!("{CHANNEL} (channel-receive in)")), Err(Error::Deadlock));
}

#[test]
fn end_cannot_be_written_as_bytes() {
    for value in ["out", "(list 1 in)", "(lambda () (channel-send out 1))", "(channel-share in)"] {
        let text = format!("(let-values (((out in) (make-channel))) (value->bytes {value}))");
        let text = format!("(guard (e (#t (list (error-object-kind e) (error-object-message e)))) {text} 'written)");
        everywhere(&text, "(image \"an end of a channel cannot be written as bytes\")");
    }
    let mut scheme = machine();
    scheme
        .eval(
            "test",
            "(define-values (out in) (make-channel)) (spawn (let ((in in)) (lambda () (channel-receive in))))",
        )
        .unwrap();
    scheme.eval("test", "(sleep .001)").unwrap();
    let process = scheme.processes()[0];
    let written = scheme.write_process(process).unwrap().unwrap_err();
    assert_eq!(written.to_string(), "an end of a channel cannot be written as bytes");
    // It goes on here.
    assert_eq!(scheme.eval("test", "(channel-send out 1) 'sent").unwrap(), "sent");
}

#[test]
fn clause_for_nothing_lets_a_receiver_that_waits_take_a_value() {
    let text = format!(
        "{CHANNEL}
        (define waiting (spawn (lambda () (! me 'waits) (! me (channel-receive in)))))
        (?)
        (define (try tries)   ; nothing receives until the other process waits
          (alt ((channel-send out 1) 'sent)
               (else (if (= tries 0) 'nothing (begin (sleep .001) (try (- tries 1)))))))
        (list (try 5000) (?))"
    );
    everywhere(&text, "(sent 1)");
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Krill(u32),
    All,
}

#[test]
fn typed_channel_carries_values_between_rust_and_scheme() -> Result {
    block_on(async {
        let program = Program::new();
        let ((tx, mut rx), (mut orders, shop)) = (channel::<Order>(), channel::<(u8, Order)>());
        program.define("out", &tx.into_end())?;
        program.define("in", &shop.into_end())?;
        let process = program.spawn(
            "test",
            "(define wrong (guard (e (#t (error-object-kind e))) (channel-send out '(krill fresh))))
            (channel-send out '(krill 7))
            (define second (channel-receive in))
            (channel-send out (cadr second))
            (list wrong second (eof-object? (channel-receive in)))",
        )?;
        assert_eq!(rx.recv().await?, Order::Krill(7));
        orders.send((2, Order::All)).await?;
        assert_eq!(rx.recv().await?, Order::All);
        drop(orders);
        assert_eq!(process.await?.to_string(), "(type (2 all) #t)");
        // The sender of the process left with it.
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    })
}

#[test]
fn send_of_rust_is_done_when_scheme_has_received() -> Result {
    block_on(async {
        let program = Program::new();
        let (mut tx, rx) = channel::<u8>();
        let (gate, mut opened) = mailbox::<ProcessNumber>();
        program.define("in", &rx.into_end())?;
        program.define("gate", &program.address(gate))?;
        let process = program.spawn("test", "(! gate (self)) (?) (channel-receive in)")?;
        let number = opened.recv().await?;
        assert!(tx.try_send(1).is_err(), "nothing receives yet");
        program.send(number, &())?;
        tx.send(2).await?;
        assert_eq!(process.await?, Value::Integer(2));
        Ok(())
    })
}

#[test]
fn killed_process_loses_no_value() -> Result {
    block_on(async {
        let program = Program::new();
        let (tx, rx) = channel::<Value>();
        let (tx, mut rx) = (tx.share(), rx.share());
        program.define("out", &tx.clone().into_end())?;
        program.define("in", &rx.clone().into_end())?;
        for n in 0..50_i128 {
            // Each waits, or has been woken, or has not begun when it is killed.
            let receiver = program.spawn("test", "(channel-receive in)")?;
            if n % 3 > 0 {
                dunlin::sleep(std::time::Duration::from_micros(n as u64 * 20)).await;
            }
            let ours = rx.clone();
            let sent = spawn({
                let mut tx = tx.clone();
                async move { tx.send(Value::Integer(n)).await.is_ok() }
            });
            receiver.pid().kill();
            let got = match receiver.await {
                Ok(value) => value,
                Err(_) => {
                    let mut ours = ours;
                    ours.recv().await?
                }
            };
            assert_eq!((got, sent.await?), (Value::Integer(n), true));
        }
        for n in 0..50_u64 {
            let sender = program.spawn("test", "(channel-send out 'mine)")?;
            if n % 3 > 0 {
                dunlin::sleep(std::time::Duration::from_micros(n * 20)).await;
            }
            sender.pid().kill();
            let _ = sender.await;
            assert!(rx.try_recv().is_err(), "the value of a sender that was killed is withdrawn");
        }
        tx.poison("over");
        Ok(())
    })
}

#[test]
fn scheme_that_kills_a_waiting_process_withdraws_its_operation() -> Result {
    block_on(async {
        let program = Program::new();
        let (mut tx, rx) = channel::<u8>();
        let rx = rx.share();
        program.define("in", &rx.into_end())?;
        let (address, mut began) = mailbox::<ProcessNumber>();
        program.define("rust", &program.address(address))?;
        let victim = program.spawn("test", "(! rust (self)) (channel-receive in)")?;
        let number = began.recv().await?;
        program.define("victim", &number)?;
        // It waits by then, or is about to: it must not matter.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        program.spawn("test", "(kill victim)")?.await?;
        assert!(victim.await.is_err());
        assert!(tx.try_send(1).is_err());
        let next = program.spawn("test", "(channel-receive in)")?;
        tx.send(2).await?;
        assert_eq!(next.await?, Value::Integer(2));
        Ok(())
    })
}

#[derive(Serialize, Deserialize)]
struct Guest {
    name: String,
    reply: End,
}

#[test]
fn ends_travel_between_rust_and_scheme_in_messages() -> Result {
    block_on(async {
        let program = Program::new();
        let (address, mut guests) = mailbox::<Guest>();
        program.define("host", &program.address(address))?;
        let process = program.spawn(
            "test",
            "(define-values (out in) (make-channel))
            (channel-send out 0 0 'used)
            (! host `((name . \"krill\") (reply . ,out)))
            (list (channel-receive in) (guard (e (#t (error-object-kind e))) (channel-send out 1)))",
        )?;
        let Guest { name, reply } = guests.recv().await?;
        assert_eq!((name.as_str(), reply.kind(), reply.is_shared()), ("krill", EndKind::Sender, false));
        assert_eq!(Receiver::<Value>::from_end(&reply).err(), Some(EndError::OtherType));
        assert_eq!(Sender::<u8>::from_end(&reply).err(), Some(EndError::OtherType));
        assert_eq!(Shared::<Sender<Value>>::from_end(&reply).err(), Some(EndError::OtherType));
        let mut tx = Sender::<Value>::from_end(&reply)?;
        assert_eq!(Sender::<Value>::from_end(&reply).err(), Some(EndError::Gone));
        tx.send(Value::Integer(7)).await?;
        assert_eq!(process.await?.to_string(), "(7 end)");
        // To Scheme: with a message, and over a channel.
        let (mut line, calls) = channel::<Guest>();
        program.define("calls", &calls.into_end())?;
        let process =
            program.spawn("test", "(let ((out (cdr (cadr (channel-receive calls))))) (channel-send out 'yes))")?;
        let (tx, mut rx) = channel::<Value>();
        line.send(Guest { name: "squid".into(), reply: tx.into_end() }).await?;
        assert_eq!(rx.recv().await?, Value::Symbol("yes".into()));
        process.await?;
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        // One that a mailbox refuses is dropped.
        let (number, _mailbox) = mailbox::<u8>();
        program.define("host", &program.address(number))?;
        let text = "(define-values (out in) (make-channel)) (! host out) (eof-object? (channel-receive in))";
        assert_eq!(program.spawn("test", text)?.await?, Value::Bool(true));
        assert_eq!(program.dropped(), 1);
        Ok(())
    })
}

#[test]
fn end_travels_to_another_program() -> Result {
    block_on(async {
        let (here, there) = (Program::new(), Program::new());
        let (tx, rx) = channel_with::<Value>(fifo(1));
        here.define("line", &tx.into_end())?;
        there.define("line", &rx.into_end())?;
        let answer = here.spawn(
            "test",
            "(define-values (out in) (make-channel)) (channel-send line (list 'ask out)) (channel-receive in)",
        )?;
        there.spawn("test", "(channel-send (cadr (channel-receive line)) 'far)")?.await?;
        assert_eq!(answer.await?, Value::Symbol("far".into()));
        Ok(())
    })
}

#[test]
fn end_that_is_in_use_cannot_be_taken() -> Result {
    block_on(async {
        let program = Program::new();
        let (tx, rx) = channel::<u8>();
        let end = rx.into_end();
        program.define("in", &end)?;
        let (address, mut began) = mailbox::<ProcessNumber>();
        program.define("rust", &program.address(address))?;
        let waiting = program.spawn("test", "(! rust (self)) (channel-receive in)")?;
        began.recv().await?;
        // (Another type, so that it stays there until the operation takes it.)
        while Receiver::<u16>::from_end(&end).err() != Some(EndError::Gone) {
            tokio::task::yield_now().await;
        }
        assert_eq!(Receiver::<u8>::from_end(&end).err(), Some(EndError::Gone));
        drop(tx);
        waiting.await?;
        // A process that ends takes its ends along, also if Rust knows them.
        let (_tx, rx) = channel::<u8>();
        let end = rx.into_end();
        program.define("in", &end)?;
        let rx = Receiver::<u8>::from_end(&end)?;
        let kind = program.spawn("test", "(guard (e (#t (error-object-kind e))) (channel-receive in))")?.await?;
        assert_eq!(kind, Value::Symbol("end".into()));
        drop(rx);
        Ok(())
    })
}

#[test]
fn end_is_encoded_only_as_data_of_scheme() -> Result {
    struct Shown<'e>(&'e End);
    impl std::fmt::Display for Shown<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.serialize(f)
        }
    }
    let end = channel::<u8>().0.into_end();
    assert_eq!(value_of(&(1, &end))?, Value::List(vec![Value::Integer(1), Value::End(end.clone())]));
    assert_eq!(value_of(&Value::Vector(vec![Value::End(end.clone())]))?, Value::Vector(vec![Value::End(end.clone())]));
    assert!(std::fmt::Write::write_fmt(&mut String::new(), format_args!("{}", Shown(&end))).is_err());
    assert_eq!(dunlin_scheme::from_value::<End>(Value::End(end.clone()))?, end);
    assert!(dunlin_scheme::from_value::<End>(Value::Integer(1)).is_err());
    assert!(dunlin_scheme::from_value::<u8>(Value::End(end)).is_err());
    Ok(())
}

#[test]
fn poison_of_rust_reaches_scheme_and_back() -> Result {
    block_on(async {
        let program = Program::new();
        let (tx, rx) = channel::<u8>();
        program.define("in", &rx.into_end())?;
        let process = program.spawn("test", "(guard (e (#t (error-object-irritants e))) (channel-receive in))")?;
        tx.poison("too warm");
        assert_eq!(process.await?.to_string(), "(\"too warm\")");
        let (tx, mut rx) = channel::<u8>();
        program.define("out", &tx.into_end())?;
        program.spawn("test", "(channel-poison out \"too cold\")")?.await?;
        assert!(matches!(rx.recv().await, Err(RecvError::Poisoned(reason)) if reason.as_str() == "too cold"));
        Ok(())
    })
}

/// A waker that uses the program, as that of any task may: the drop of an end wakes under no lock of it.
struct Ask(Program);

impl std::task::Wake for Ask {
    fn wake(self: std::sync::Arc<Self>) {
        let _ = self.0.send(ProcessNumber(1 << 40), &1);
    }
}

impl Ask {
    fn waker(program: &Program) -> std::task::Waker {
        std::sync::Arc::new(Self(program.clone())).into()
    }
}

#[test]
fn end_in_a_value_that_is_too_deep_is_dropped_outside_of_the_program() -> Result {
    block_on(async {
        let program = Program::new();
        let ((mut line, calls), (tx, mut rx)) = (channel::<Value>(), channel::<u8>());
        program.define("calls", &calls.into_end())?;
        let mut next = std::pin::pin!(rx.recv());
        let waker = Ask::waker(&program);
        assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        let text = "(guard (e (#t (error-object-kind e))) (channel-receive calls))";
        let process = program.spawn("test", text)?;
        let deep = (0..600).fold(Value::End(tx.into_end()), |inner, _| Value::List(vec![inner]));
        line.send(deep).await?;
        assert_eq!(process.await?, Value::Symbol("channel".into()));
        assert_eq!(next.await, Err(RecvError::Closed));
        Ok(())
    })
}

#[test]
fn rust_may_drop_an_end_whose_waker_uses_the_program() -> Result {
    block_on(async {
        let program = Program::new();
        let (tx, mut rx) = channel::<u8>();
        program.define("out", &tx.into_end())?;
        let (address, mut began) = mailbox::<ProcessNumber>();
        program.define("rust", &program.address(address))?;
        let holder = program.spawn("test", "(channel-send out 1) (! rust (self)) (?)")?;
        assert_eq!(rx.recv().await?, 1);
        began.recv().await?;
        let mut next = std::pin::pin!(rx.recv());
        let waker = Ask::waker(&program);
        assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        holder.pid().kill();
        let _ = holder.await;
        assert_eq!(next.await, Err(RecvError::Closed));
        Ok(())
    })
}

#[test]
fn examples_of_the_documentation_have_their_values() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scheme.md");
    // A packaged crate has no docs.
    let Ok(text) = std::fs::read_to_string(path) else { return };
    let (_, channels) = text.split_once("\n## Channels").expect("there is a chapter");
    let (channels, _) = channels.split_once("\n## ").expect("another one follows");
    let mut count = 0;
    for block in channels.split("```scheme\n").skip(1) {
        let (program, _) = block.split_once("```").expect("a block ends");
        let (_, value) = program.rsplit_once("; => ").expect("a block has a value");
        everywhere(program, value.trim_end());
        count += 1;
    }
    assert_eq!(count, 3);
}
