"""Links with faults of their own, and partitions both ways and one way."""

import pytest

from leasehold.testing import Faults, Host, Network, Simulation


class Mesh:
    """Hosts that can be asked who hears whom."""

    def __init__(self, sim: Simulation, names: str) -> None:
        self.sim = sim
        self.network: Network = sim.network(Faults(delay=(0.01, 0.02)))
        self.hosts: list[Host] = [sim.host(name) for name in names]
        self.heard: set[str] = set()
        for host in self.hosts:
            self.network.serve(host, "hear", self.heard.add)

    def who_hears_whom(self) -> set[str]:
        self.heard.clear()
        for src in self.hosts:
            for dst in self.hosts:
                if src is not dst:
                    src.start(self._say, src, dst)
        self.sim.run_for(1.0)
        return set(self.heard)

    async def _say(self, src: Host, dst: Host) -> None:
        await self.network.call(src, dst, "hear", f"{src.name}{dst.name}")


def test_a_partition_cuts_groups_from_each_other_until_it_heals() -> None:
    with Simulation(0) as sim:
        mesh = Mesh(sim, "abcd")
        a, b, c, _ = mesh.hosts
        everything = mesh.who_hears_whom()
        assert len(everything) == 12
        mesh.network.partition({a, b}, {c})
        assert everything - mesh.who_hears_whom() == {"ac", "ca", "bc", "cb"}
        mesh.network.heal()
        assert mesh.who_hears_whom() == everything


def test_a_single_group_is_cut_from_all_others() -> None:
    with Simulation(0) as sim:
        mesh = Mesh(sim, "abc")
        mesh.network.partition({mesh.hosts[0]})
        assert mesh.who_hears_whom() == {"bc", "cb"}


def test_a_one_way_partition_cuts_what_the_first_group_says() -> None:
    with Simulation(0) as sim:
        mesh = Mesh(sim, "abc")
        a, b, c = mesh.hosts
        mesh.network.partition({a}, {b, c}, one_way=True)
        assert mesh.who_hears_whom() == {"ba", "ca", "bc", "cb"}


def test_partitions_add_up() -> None:
    with Simulation(0) as sim:
        mesh = Mesh(sim, "abc")
        a, b, c = mesh.hosts
        mesh.network.partition({a}, {b})
        mesh.network.partition({b}, {c}, one_way=True)
        assert mesh.who_hears_whom() == {"ac", "ca", "cb"}


def test_a_message_under_way_when_the_link_is_cut_is_lost() -> None:
    with Simulation(0) as sim:
        mesh = Mesh(sim, "ab")
        sim.after(0.005, lambda: mesh.network.partition(mesh.hosts[:1]))
        assert mesh.who_hears_whom() == set()


def test_partitions_need_groups() -> None:
    with Simulation(0) as sim:
        network, host = sim.network(), sim.host("a")
        with pytest.raises(ValueError, match="groups"):
            network.partition()
        with pytest.raises(ValueError, match="two"):
            network.partition({host}, one_way=True)


def test_a_link_has_faults_of_its_own_both_ways_or_one_way() -> None:
    with Simulation(0) as sim:
        a, b, c = (sim.host(name) for name in "abc")
        standard, deaf, slow = Faults(), Faults(loss=1.0), Faults(delay=(1.0, 2.0))
        network = sim.network(standard)
        network.link(a, b, deaf)
        network.link(b, c, slow, one_way=True)
        assert network.faults(a, b) is deaf
        assert network.faults(b, a) is deaf
        assert network.faults(b, c) is slow
        assert network.faults(c, b) is standard
        network.link(a, b, None, one_way=True)
        assert network.faults(a, b) is standard
        assert network.faults(b, a) is deaf
        network.default = slow
        assert network.default is slow
        assert network.faults(a, c) is slow


def test_a_host_reaches_itself_whatever_the_network_does() -> None:
    with Simulation(0) as sim:
        host = sim.host("a")
        network = sim.network(Faults(loss=1.0))
        network.partition({host})
        network.serve(host, "x", lambda payload: payload)
        task = host.start(network.call, host, host, "x", 5)
        sim.run_until(task.done, within=1.0)
        assert task.result() == 5
