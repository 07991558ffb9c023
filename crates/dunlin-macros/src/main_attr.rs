//! `#[main]` and `#[test]`: an `async fn` becomes a `fn` that runs it on the runtime, and prints the error
//! that `main` or the test returns.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Error, Ident, ItemFn, LitInt, Path, Result, ReturnType, Signature, Token, Type, bracketed, parse_quote, parse2,
};

/// What the function becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Main,
    Test,
}

/// The expansion, or an error beside an empty function of the same name, so that the compiler does not also
/// report that `main` is missing.
pub(crate) fn expand(role: Role, arguments: TokenStream, function: TokenStream) -> TokenStream {
    let function: ItemFn = match parse2(function) {
        Ok(function) => function,
        Err(error) => return error.into_compile_error(),
    };
    let (visibility, name) = (function.vis.clone(), function.sig.ident.clone());
    try_expand(role, arguments, function).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#error #visibility fn #name() {})
    })
}

fn try_expand(role: Role, arguments: TokenStream, mut function: ItemFn) -> Result<TokenStream> {
    let Arguments { workers, remote } = parse2(arguments)?;
    let signature = &mut function.sig;
    if let Some((word, _)) = &remote
        && (role == Role::Test || signature.ident != "main")
    {
        return Err(Error::new(word.span(), "only `main` of a program can run functions in processes"));
    }
    if signature.asyncness.take().is_none() {
        let what = "the function must be `async`";
        return Err(Error::new_spanned(signature.fn_token, what));
    }
    if !signature.inputs.is_empty() {
        let what = match role {
            Role::Main => "the function may not take arguments: `std::env::args` has the program's",
            Role::Test => "a test may not take arguments",
        };
        return Err(Error::new_spanned(&signature.inputs, what));
    }
    if !signature.generics.params.is_empty() {
        let what = "the function may not have generic parameters";
        return Err(Error::new_spanned(&signature.generics, what));
    }
    if role == Role::Test {
        if let Some(twice) = function.attrs.iter().find(|attribute| attribute.path().is_ident("test")) {
            let what = "remove `#[test]`: the attribute of dunlin makes the function a test already";
            return Err(Error::new_spanned(twice, what));
        }
        function.attrs.push(parse_quote!(#[::core::prelude::v1::test]));
    }
    let workers = match workers {
        Some(workers) => quote!(::core::option::Option::Some(#workers)),
        None => quote!(::core::option::Option::None),
    };
    // The body stays an `async fn`, not a block, so that its type errors are reported in place.
    let (signature, body) = (&function.sig, &function.block);
    let name = &signature.ident;
    let remote = remote.map(|(_, functions)| {
        let functions = functions.iter();
        quote! {
            const __REMOTE: &[::dunlin::__rt::RemoteEntry] = &[#(<#functions>::__ENTRY),*];
            ::dunlin::__rt::serve_processes(__REMOTE);
        }
    });
    // Without a runtime a program ends; a test fails, and other tests run.
    let run = match role {
        Role::Main if name == "main" => quote!(::dunlin::__rt::main(#workers, #name())),
        _ => quote!(::dunlin::__rt::block_on_workers(#workers, #name())),
    };
    if !reports(role, signature) {
        function.block = parse_quote!({
            #[allow(clippy::unused_async, reason = "a body need not await")]
            async #signature #body
            #remote
            #run
        });
        return Ok(quote!(#function));
    }
    // The standard library would print an error with `Debug`, which is for programmers.
    function.block = parse_quote!({
        #[allow(clippy::unused_async, reason = "a body need not await")]
        async #signature #body
        #remote
        #[allow(unused_imports, reason = "of the traits only those that fit are used")]
        use ::dunlin::__rt::{ReportBoxed as _, ReportError as _, ReportOther as _, ReportText as _};
        (&&&&::dunlin::__rt::Outcome::new(#run)).report()
    });
    function.sig.output = parse_quote!(-> ::std::process::ExitCode);
    Ok(quote!(#function))
}

/// Whether the function may return an error that ends the program or the test.
fn reports(role: Role, signature: &Signature) -> bool {
    let ends = role == Role::Test || signature.ident == "main";
    let ReturnType::Type(_, output) = &signature.output else { return false };
    ends && match &**output {
        Type::Never(_) => false,
        // (The compiler requires a test with `#[should_panic]` to return `()`.)
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        _ => true,
    }
}

const KNOWN: &str = "only `workers = N` and `remote = [function, ..]` are known";

#[derive(Default)]
struct Arguments {
    /// A `usize` from 1.
    workers: Option<LitInt>,
    /// The functions of `#[remote]` that processes of the program serve, and the keyword before them.
    remote: Option<(Ident, Punctuated<Path, Token![,]>)>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse().map_err(|_| input.error(KNOWN))?;
            match key.to_string().as_str() {
                "workers" if arguments.workers.is_some() => {
                    return Err(Error::new(key.span(), "`workers` is given twice"));
                }
                "workers" => {
                    input.parse::<Token![=]>()?;
                    arguments.workers = Some(parse_workers(input)?);
                }
                "remote" if arguments.remote.is_some() => {
                    return Err(Error::new(key.span(), "`remote` is given twice"));
                }
                "remote" => {
                    input.parse::<Token![=]>()?;
                    let list;
                    bracketed!(list in input);
                    arguments.remote = Some((key, Punctuated::parse_terminated(&list)?));
                }
                _ => return Err(Error::new(key.span(), KNOWN)),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

fn parse_workers(input: ParseStream<'_>) -> Result<LitInt> {
    let (place, what) = (input.span(), "`workers` must be a whole number from 1");
    let count: LitInt = input.parse().map_err(|_| Error::new(place, what))?;
    match count.base10_parse::<usize>() {
        Ok(1..) if matches!(count.suffix(), "" | "usize") => Ok(count),
        _ => Err(Error::new(count.span(), what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::{Blame, blame};

    const MAIN: &str = "async fn main() {}";

    fn refusal_of_arguments(arguments: &str) -> Blame {
        blame(arguments, |arguments| try_expand(Role::Main, arguments, syn::parse_str(MAIN)?))
    }

    fn refusal_of_function(function: &str) -> Blame {
        blame(function, |function| try_expand(Role::Main, TokenStream::new(), parse2(function)?))
    }

    #[test]
    fn expansion() {
        let function = quote! {
            /// Says.
            pub async fn main() -> Result { work().await }
        };
        let expected = quote! {
            /// Says.
            pub fn main() -> ::std::process::ExitCode {
                #[allow(clippy::unused_async, reason = "a body need not await")]
                async fn main() -> Result { work().await }
                #[allow(unused_imports, reason = "of the traits only those that fit are used")]
                use ::dunlin::__rt::{ReportBoxed as _, ReportError as _, ReportOther as _, ReportText as _};
                (& & & & ::dunlin::__rt::Outcome::new(::dunlin::__rt::main(::core::option::Option::None, main()))).report()
            }
        };
        let found = expand(Role::Main, TokenStream::new(), function);
        assert_eq!(found.to_string(), expected.to_string());
    }

    #[test]
    fn expansion_of_a_test() {
        let function = quote! {
            #[should_panic]
            async fn two_and_two() { work().await }
        };
        let expected = quote! {
            #[should_panic]
            #[::core::prelude::v1::test]
            fn two_and_two() {
                #[allow(clippy::unused_async, reason = "a body need not await")]
                async fn two_and_two() { work().await }
                ::dunlin::__rt::block_on_workers(::core::option::Option::Some(2), two_and_two())
            }
        };
        let found = expand(Role::Test, quote!(workers = 2), function);
        assert_eq!(found.to_string(), expected.to_string());
    }

    #[test]
    fn return_value_of_a_test_is_reported() {
        let expand = |function: &str| {
            let found = expand(Role::Test, TokenStream::new(), function.parse().expect(function)).to_string();
            found.contains("report")
        };
        assert!(expand("async fn two() -> Result { work() }"));
        assert!(!expand("async fn two() {}") && !expand("async fn two() -> () {}"));
    }

    #[test]
    fn refusals_of_tests() {
        let refusal =
            |function: &str| blame(function, |function| try_expand(Role::Test, TokenStream::new(), parse2(function)?));
        assert_eq!(refusal("async fn f(a: u8) {}"), ("a test may not take arguments".into(), "a: u8".into()));
        let what = "remove `#[test]`: the attribute of dunlin makes the function a test already";
        assert_eq!(refusal("#[test] async fn f() {}"), (what.into(), "#[test]".into()));
        assert_eq!(refusal("fn f() {}"), ("the function must be `async`".into(), "fn".into()));
    }

    #[test]
    fn only_a_return_value_of_main_is_reported() {
        for function in
            ["async fn main() {}", "async fn main() -> ! { loop {} }", "async fn run() -> Result { work() }"]
        {
            let found = expand(Role::Main, TokenStream::new(), function.parse().expect(function)).to_string();
            assert!(!found.contains("report"), "{found}");
        }
    }

    #[test]
    fn workers_argument_sets_the_worker_count() {
        for (arguments, count) in [("workers = 3", "3"), ("workers = 0x10usize,", "0x10usize")] {
            let found = expand(Role::Main, arguments.parse().expect(arguments), MAIN.parse().expect(MAIN));
            let found = found.to_string();
            assert!(found.contains(&format!("Some ({count})")), "{found}");
        }
    }

    #[test]
    fn refusals_of_workers() {
        let what = "`workers` must be a whole number from 1";
        for count in ["0", "-1", "1.5", "\"2\"", "3u8", "many", "99999999999999999999999"] {
            let found = refusal_of_arguments(&format!("workers = {count}"));
            assert_eq!(found, (what.into(), count.into()));
        }
        assert_eq!(refusal_of_arguments("workers =").0, what);

        let twice = refusal_of_arguments("workers = 1, workers = 2");
        assert_eq!(twice, ("`workers` is given twice".into(), "workers".into()));
    }

    #[test]
    fn remote_functions_are_listed() {
        let found = expand(Role::Main, quote!(remote = [sum, far::away,], workers = 1), MAIN.parse().expect(MAIN));
        let list = quote!(&[<sum>::__ENTRY, <far::away>::__ENTRY]).to_string();
        assert!(found.to_string().contains(&list), "{found}");
    }

    #[test]
    fn refusals_of_remote_functions() {
        let twice = refusal_of_arguments("remote = [], remote = []");
        assert_eq!(twice, ("`remote` is given twice".into(), "remote".into()));
        let what = "only `main` of a program can run functions in processes";
        let of_a_test = blame("remote = [f]", |list| try_expand(Role::Test, list, syn::parse_str(MAIN)?));
        assert_eq!(of_a_test, (what.into(), "remote".into()));
        let of_another = blame("remote = [f]", |list| {
            try_expand(
                Role::Main,
                list,
                parse_quote!(
                    async fn run() {}
                ),
            )
        });
        assert_eq!(of_another, (what.into(), "remote".into()));
    }

    #[test]
    fn refusals_of_arguments() {
        let what = KNOWN;
        assert_eq!(refusal_of_arguments("threads = 1"), (what.into(), "threads".into()));
        assert_eq!(refusal_of_arguments("3"), (what.into(), "3".into()));
        assert_eq!(refusal_of_arguments("workers"), ("expected `=`".into(), "".into()));
    }

    #[test]
    fn refusals_of_functions() {
        let what = "the function must be `async`";
        assert_eq!(refusal_of_function("fn main() {}"), (what.into(), "fn".into()));

        let what = "the function may not take arguments: `std::env::args` has the program's";
        assert_eq!(refusal_of_function("async fn main(a: u8) {}"), (what.into(), "a: u8".into()));

        let what = "the function may not have generic parameters";
        assert_eq!(refusal_of_function("async fn main<T>() {}"), (what.into(), "<T>".into()));
    }

    #[test]
    fn refused_main_expands_to_an_empty_function() {
        let found = expand(
            Role::Main,
            TokenStream::new(),
            quote!(
                pub fn main() {
                    work()
                }
            ),
        )
        .to_string();
        assert!(found.contains("compile_error"), "{found}");
        assert!(
            found.ends_with(
                &quote!(
                    pub fn main() {}
                )
                .to_string()
            ),
            "{found}"
        );
    }
}
