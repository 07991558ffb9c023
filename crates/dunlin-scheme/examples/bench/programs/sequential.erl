%% The programs in Erlang. Prints the value and the milliseconds of the second run.
-module(sequential).
-export([main/1]).

main([Name]) ->
    Run = program(list_to_atom(Name)),
    Run(),
    Started = erlang:monotonic_time(microsecond),
    Value = Run(),
    Elapsed = erlang:monotonic_time(microsecond) - Started,
    io:format("~p ~p~n", [Value, Elapsed / 1000]),
    halt().

times(1, Run) -> Run();
times(N, Run) -> Run(), times(N - 1, Run).

program(fib) -> fun() -> fib(30) end;
program(tak) -> fun() -> times(20, fun() -> tak(18, 12, 6) end) end;
program(nrev) ->
    Numbers = lists:seq(1, 1500),
    fun() -> times(5, fun() -> length(nrev(Numbers)) end) end;
program(qsort) ->
    Numbers = numbers(10000, 1, []),
    fun() -> times(5, fun() -> length(qsort(Numbers, [])) end) end;
program(smith) -> fun() -> smith(2, 0) end.

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

tak(X, Y, Z) when Y < X -> tak(tak(X - 1, Y, Z), tak(Y - 1, Z, X), tak(Z - 1, X, Y));
tak(_, _, Z) -> Z.

app([], Y) -> Y;
app([H | T], Y) -> [H | app(T, Y)].

nrev([]) -> [];
nrev([H | T]) -> app(nrev(T), [H]).

numbers(0, _, L) -> L;
numbers(I, S, L) -> numbers(I - 1, (S * 16807 + 1) rem 2147483647, [S | L]).

part(_, [], Less, More, K) -> K(Less, More);
part(P, [H | T], Less, More, K) when H < P -> part(P, T, [H | Less], More, K);
part(P, [H | T], Less, More, K) -> part(P, T, Less, [H | More], K).

qsort([], Rest) -> Rest;
qsort([P | T], Rest) ->
    part(P, T, [], [], fun(Less, More) -> qsort(Less, [P | qsort(More, Rest)]) end).

digits(0, S) -> S;
digits(N, S) -> digits(N div 10, S + N rem 10).

factors(N, D, S, K) when D * D > N ->
    if K =:= 0 -> -1; N > 1 -> S + digits(N, 0); true -> S end;
factors(N, D, S, K) when N rem D =:= 0 -> factors(N div D, D, S + digits(D, 0), K + 1);
factors(N, D, S, K) -> factors(N, D + 1, S, K).

smith(20000, C) -> C;
smith(N, C) ->
    case digits(N, 0) =:= factors(N, 2, 0, 0) of
        true -> smith(N + 1, C + 1);
        false -> smith(N + 1, C)
    end.
