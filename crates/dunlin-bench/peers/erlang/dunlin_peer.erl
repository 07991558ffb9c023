%% The Erlang side of dunlin-bench: the same programs as src/programs.rs, with processes and messages.
%%
%%     erl -noshell +S 1:1 +P 2000000 -pa OUT -run dunlin_peer main commstime 250000
%%
%% Prints one number: nanoseconds per event (per process for spawn).
%%
%% The remote ones run on nodes of their own, which this one starts (`peer`), and over their distribution protocol:
%%
%%     erl -sname bench@localhost -setcookie COOKIE ... -run dunlin_peer main remote-pingpong 20000 100000
%%
%% Erlang's messages are asynchronous: `!` does not wait for the receiver, so a sender may run ahead and does less than a
%% rendezvous does. Read these figures as those of another kind of communication, not as a slower or faster rendezvous.
-module(dunlin_peer).
-behaviour(gen_server).
-export([main/1, echo/1, sink/2, copy/1, successor/1, delta/2, remote_prefix/0]).
-export([init/1, handle_call/3, handle_cast/2]).

main([Bench, N]) -> main([Bench, N, "8"]);
main([Bench, N, Size]) ->
    Count = list_to_integer(N),
    %% In a process of its own with room to spare, so that collecting garbage of a growing heap is not what is measured.
    {_, Monitor} = spawn_opt(fun() -> io:format("~w~n", [run(Bench, Count, list_to_integer(Size))]) end, [monitor, {min_heap_size, 100000}]),
    receive
        {'DOWN', Monitor, process, _, normal} -> halt(0);
        {'DOWN', Monitor, process, _, Reason} ->
            io:format(standard_error, "~p~n", [Reason]),
            halt(1)
    end;
main(_) ->
    io:format(standard_error, "usage: dunlin_peer main commstime|pingpong|ring|spawn N~n", []),
    halt(2).

run("commstime", N, _) -> commstime(N);
run("pingpong", N, _) -> pingpong(N);
run("ring", N, _) -> ring(N);
run("spawn", N, _) -> spawn_all(N);
run("process-spawn", N, _) -> spawn_all(N);
run("process-down", N, _) -> process_down(N);
run("link-exit", N, _) -> link_exit(N);
run("post", N, _) -> post(N);
run("server-call", N, _) -> server_call(N);
run("process-bytes", N, _) -> process_bytes(N);
run("link-bytes", N, _) -> link_bytes(N);
run("remote-pingpong", N, Size) -> remote_pingpong(N, Size);
run("remote-throughput", N, Size) -> remote_throughput(N, Size);
run("address-pingpong", N, Size) -> remote_pingpong(N, Size);
run("address-posts", N, Size) -> remote_throughput(N, Size);
run("remote-commstime", N, _) -> remote_commstime(N).

nanoseconds_per(Events, Start) ->
    erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond) / Events.

%% prefix -> delta -> successor -> prefix, and delta -> consumer; N cycles of four messages.
commstime(N) ->
    Consumer = self(),
    Start = erlang:monotonic_time(),
    Prefix = spawn_link(fun() ->
        Delta = receive {delta, Pid} -> Pid end,
        Delta ! 0,
        copy(Delta)
    end),
    Successor = spawn_link(fun() -> successor(Prefix) end),
    Delta = spawn_link(fun() -> delta(Successor, Consumer) end),
    Prefix ! {delta, Delta},
    consumer(0, N),
    nanoseconds_per(4 * N, Start).

copy(To) -> receive V -> To ! V, copy(To) end.

successor(To) -> receive V -> To ! V + 1, successor(To) end.

delta(First, Second) -> receive V -> First ! V, Second ! V, delta(First, Second) end.

consumer(N, N) -> ok;
consumer(I, N) -> receive I -> consumer(I + 1, N) end.

%% N round trips.
pingpong(N) ->
    Ping = self(),
    Start = erlang:monotonic_time(),
    Pong = spawn_link(fun() -> copy(Ping) end),
    ping(Pong, 0, N),
    nanoseconds_per(N, Start).

ping(_, N, N) -> ok;
ping(Pong, I, N) ->
    Pong ! I,
    receive I -> ping(Pong, I + 1, N) end.

%% N processes in a ring, one token; after one round that warms up, at least a million hops.
ring(N) ->
    First = lists:foldl(fun(_, Next) -> spawn(fun() -> copy(Next) end) end, self(), lists:seq(1, N - 1)),
    rounds(First, 1),
    Rounds = max(1, 1000000 div N),
    Start = erlang:monotonic_time(),
    rounds(First, Rounds),
    nanoseconds_per(Rounds * N, Start).

rounds(_, 0) -> ok;
rounds(First, Rounds) ->
    First ! token,
    receive token -> rounds(First, Rounds - 1) end.

%% N processes that end at once, until all have ended.
spawn_all(N) ->
    Parent = self(),
    Start = erlang:monotonic_time(),
    start(N, fun() -> Parent ! ended end),
    join(N),
    nanoseconds_per(N, Start).

start(0, _) -> ok;
start(N, Body) -> spawn(Body), start(N - 1, Body).

join(0) -> ok;
join(N) -> receive ended -> join(N - 1) end.

%% N monitored processes that end at once, one after the other, until each has been reported.
process_down(N) ->
    Start = erlang:monotonic_time(),
    downs(N),
    nanoseconds_per(N, Start).

downs(0) -> ok;
downs(N) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Pid, normal} -> downs(N - 1) end.

%% N parked processes, each linked to the next. The first one is killed; until the last one has ended.
link_exit(N) ->
    [First | Rest] = parked(N),
    link_all([First | Rest]),
    Last = lists:last(Rest),
    Monitor = monitor(process, Last),
    Start = erlang:monotonic_time(),
    exit(First, kill),
    receive {'DOWN', Monitor, process, Last, Reason} when Reason =/= noproc -> ok end,
    nanoseconds_per(N, Start).

parked(N) -> [spawn(fun wait/0) || _ <- lists:seq(1, N)].

wait() -> receive {link, Pid, From} -> link(Pid), From ! linked, wait(); stop -> ok end.

%% Only a process itself can link itself to another one.
link_all([_]) -> ok;
link_all([One, Other | Rest]) ->
    One ! {link, Other, self()},
    receive linked -> ok end,
    link_all([Other | Rest]).

%% N messages from one process to another.
post(N) ->
    Start = erlang:monotonic_time(),
    {Receiver, Monitor} = spawn_monitor(fun() -> receive_all(0, N) end),
    post_all(Receiver, 0, N),
    receive {'DOWN', Monitor, process, Receiver, normal} -> ok end,
    nanoseconds_per(N, Start).

post_all(_, N, N) -> ok;
post_all(To, I, N) -> To ! I, post_all(To, I + 1, N).

receive_all(N, N) -> ok;
receive_all(I, N) -> receive V when V =:= I -> receive_all(I + 1, N) end.

%% N calls of a generic server.
server_call(N) ->
    {ok, Server} = gen_server:start_link(?MODULE, [], []),
    Start = erlang:monotonic_time(),
    call_all(Server, 0, N),
    nanoseconds_per(N, Start).

call_all(_, N, N) -> ok;
call_all(Server, I, N) ->
    Expected = I + 1,
    Expected = gen_server:call(Server, I, infinity),
    call_all(Server, Expected, N).

init([]) -> {ok, nothing}.

handle_call(I, _, State) -> {reply, I + 1, State}.

handle_cast(_, State) -> {noreply, State}.

%% Resident bytes of each of N parked processes.
process_bytes(N) ->
    Places = lists:seq(1, N),
    Before = resident_bytes(),
    Pids = [spawn(fun wait/0) || _ <- Places],
    After = resident_bytes(),
    %% Their list has two words for each, which are not the process's.
    (After - Before) / length(Pids).

%% Resident bytes of each link of N processes to their neighbours.
link_bytes(N) ->
    Pids = parked(N),
    erlang:garbage_collect(),
    Before = resident_bytes(),
    link_all(Pids),
    (resident_bytes() - Before) / length(Pids).

resident_bytes() ->
    Line = os:cmd("grep VmRSS /proc/" ++ os:getpid() ++ "/status"),
    [_, Kilobytes | _] = string:lexemes(Line, " \t"),
    1024 * list_to_integer(Kilobytes).

%% Another node in a process of its own, like this one. It ends with this one.
node_beside() ->
    Schedulers = integer_to_list(erlang:system_info(schedulers_online)),
    Args = ["-setcookie", atom_to_list(erlang:get_cookie()), "+S", Schedulers ++ ":" ++ Schedulers,
            "-pa", filename:dirname(code:which(?MODULE))],
    {ok, _, Node} = peer:start_link(#{name => peer:random_name(), host => "localhost", args => Args}),
    Node.

warm_up(N) -> N div 10 + 1.

remote_pingpong(N, Size) ->
    Pong = spawn_link(node_beside(), ?MODULE, echo, [self()]),
    Message = binary:copy(<<7>>, Size),
    trips(Pong, Message, Size, warm_up(N)),
    Start = erlang:monotonic_time(),
    trips(Pong, Message, Size, N),
    nanoseconds_per(N, Start).

echo(To) -> receive V -> To ! V, echo(To) end.

trips(_, _, _, 0) -> ok;
trips(Pong, Message, Size, N) ->
    Pong ! Message,
    receive Back when byte_size(Back) =:= Size -> trips(Pong, Back, Size, N - 1) end.

remote_throughput(N, Size) ->
    Counts = [warm_up(N), N],
    Sink = spawn_link(node_beside(), ?MODULE, sink, [self(), Counts]),
    Message = binary:copy(<<7>>, Size),
    stream(Sink, Message, hd(Counts)),
    Start = erlang:monotonic_time(),
    stream(Sink, Message, N),
    nanoseconds_per(N, Start).

stream(Sink, Message, N) ->
    repeat(N, fun() -> Sink ! Message end),
    receive {done, N} -> ok end.

sink(_, []) -> ok;
sink(Source, [N | More]) ->
    repeat(N, fun() -> receive V when is_binary(V) -> ok end end),
    Source ! {done, N},
    sink(Source, More).

repeat(0, _) -> ok;
repeat(N, Body) -> Body(), repeat(N - 1, Body).

%% Like commstime, with every process but the consumer on a node of its own.
remote_commstime(N) ->
    Prefix = spawn_link(node_beside(), ?MODULE, remote_prefix, []),
    Successor = spawn_link(node_beside(), ?MODULE, successor, [Prefix]),
    Delta = spawn_link(node_beside(), ?MODULE, delta, [Successor, self()]),
    Prefix ! {delta, Delta},
    Warm = warm_up(N),
    consumer(0, Warm),
    Start = erlang:monotonic_time(),
    consumer(Warm, Warm + N),
    nanoseconds_per(4 * N, Start).

remote_prefix() ->
    Delta = receive {delta, Pid} -> Pid end,
    Delta ! 0,
    copy(Delta).
