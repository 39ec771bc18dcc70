"""After a fork, what a client has in lines is its parent's."""

from tests.support.scripts import printed_by


def test_a_guard_is_of_no_use_in_a_child_and_stays_with_its_parent() -> None:
    assert (
        printed_by("""
            import asyncio, os
            import leasehold

            def says(call):
                try:
                    call()
                except leasehold.LeaseholdError as error:
                    return type(error).__name__

            async def main():
                async with leasehold.open("memory:") as client:
                    async with client.rwlock("x").write() as guard:
                        child = os.fork()
                        if not child:
                            print(guard.is_held, says(guard.check), says(guard.release), flush=True)
                            for wait in (client.rwlock("x").read(), client.barrier("x", 1).wait()):
                                try:
                                    await wait
                                except leasehold.Forked:
                                    print("Forked", flush=True)
                            await guard.__aexit__(None, None, None)
                            os._exit(0)
                        os.waitpid(child, 0)
                        guard.check()
                        print(len((await client.kv.range("x/", prefix=True)).pairs))
                    print(guard.is_held)

            asyncio.run(main())
        """)
        == "False LockLost Forked\nForked\nForked\n1\nFalse\n"
    )
