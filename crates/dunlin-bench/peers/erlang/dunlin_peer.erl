%% The Erlang side of dunlin-bench: the same programs as src/programs.rs, with processes and messages.
%%
%%     erl -noshell +S 1:1 +P 2000000 -pa OUT -run dunlin_peer main commstime 250000
%%
%% Prints one number: nanoseconds per event (per process for spawn).
%%
%% Erlang's messages are asynchronous: `!` does not wait for the receiver, so a sender may run ahead and does less than a
%% rendezvous does. Read these figures as those of another kind of communication, not as a slower or faster rendezvous.
-module(dunlin_peer).
-export([main/1]).

main([Bench, N]) ->
    Count = list_to_integer(N),
    %% In a process of its own with room to spare, so that collecting garbage of a growing heap is not what is measured.
    {_, Monitor} = spawn_opt(fun() -> io:format("~w~n", [run(Bench, Count)]) end, [monitor, {min_heap_size, 100000}]),
    receive
        {'DOWN', Monitor, process, _, normal} -> halt(0);
        {'DOWN', Monitor, process, _, Reason} ->
            io:format(standard_error, "~p~n", [Reason]),
            halt(1)
    end;
main(_) ->
    io:format(standard_error, "usage: dunlin_peer main commstime|pingpong|ring|spawn N~n", []),
    halt(2).

run("commstime", N) -> commstime(N);
run("pingpong", N) -> pingpong(N);
run("ring", N) -> ring(N);
run("spawn", N) -> spawn_all(N).

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
