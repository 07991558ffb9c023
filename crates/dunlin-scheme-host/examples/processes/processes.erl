%% The rows of the bench in Erlang: prints what one unit of a row takes, in the second run of two.
-module(processes).
-export([main/1]).

main([Row]) ->
    {Run, Divisor} = row(Row),
    Run(),
    Started = erlang:monotonic_time(nanosecond),
    Run(),
    io:format("~w~n", [(erlang:monotonic_time(nanosecond) - Started) / Divisor]),
    halt().

row("8 processes compute") ->
    {fun() -> times(8, fun(Main) -> fib(25), Main ! done end), await(8) end, 1.0e6};
row("1 process computes") ->
    {fun() -> fib(28) end, 1.0e6};
row("spawn, run and end") ->
    {fun() -> times(20000, fun(Main) -> Main ! 1 end), await(20000) end, 20000};
row("send to another") ->
    {fun() ->
        Me = self(),
        To = spawn(fun() -> drain(Me) end),
        send(To, 100000),
        receive done -> done end
    end, 100000};
row("hop of a ring of 100") ->
    {fun() -> First = ring(100, self()), First ! 100000, turn(First) end, 100000};
row("call of a server and its reply") ->
    {fun() -> call(spawn(fun serve/0), 20000) end, 20000}.

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

times(0, _) -> ok;
times(N, Run) -> Main = self(), spawn(fun() -> Run(Main) end), times(N - 1, Run).

await(0) -> ok;
await(N) -> receive _ -> await(N - 1) end.

send(To, 0) -> To ! 'end';
send(To, N) -> To ! N, send(To, N - 1).

drain(To) -> receive 'end' -> To ! done; _ -> drain(To) end.

ring(1, To) -> To;
ring(N, To) -> ring(N - 1, spawn(fun() -> node_to(To) end)).

node_to(To) -> receive 0 -> To ! 0; N -> To ! N - 1, node_to(To) end.

turn(First) -> receive 0 -> done; N -> First ! N - 1, turn(First) end.

serve() -> receive {From, Tag, ping} -> From ! {Tag, pong}, serve() end.

call(_, 0) -> ok;
call(Server, N) ->
    Tag = make_ref(),
    Server ! {self(), Tag, ping},
    receive {Tag, pong} -> call(Server, N - 1) end.
